"""What models are compared by, one a file: named as the task is that they learn."""
