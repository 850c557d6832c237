"""Training tasks, one per file."""
