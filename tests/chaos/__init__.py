"""The proof that breaks it: processes, services and links die while calls run, and the provider's books decide."""
