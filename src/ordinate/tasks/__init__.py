"""What a model is trained on, one a file."""
