"""A positional scheme and a token mixer for Ordinate."""
