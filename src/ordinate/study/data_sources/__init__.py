"""What studies learn from, one a file: named as the task is that learns it."""
