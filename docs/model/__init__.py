"""A model of the protocol and the checker that walks through all of it: `make model`."""
