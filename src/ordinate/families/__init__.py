"""Published models that load into ours, one family a file."""
