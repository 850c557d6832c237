"""The ways to cut text into tokens, one a file."""
