"""Questions about position in a model, one a file."""
