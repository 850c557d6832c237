"""The ways to stretch the rates of a rotation, one a file."""
