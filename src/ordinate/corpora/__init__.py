"""The texts by name, one a file."""
