"""The token mixers, one a file."""
