"""The positional schemes, one a file."""
