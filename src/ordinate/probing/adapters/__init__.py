"""Model adapters, one kind of model a file."""
