"""The ways to compute attention, one a file."""
