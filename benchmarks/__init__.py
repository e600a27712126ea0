"""The benchmark: what the whole costs and how fast it is, on the real stack."""
