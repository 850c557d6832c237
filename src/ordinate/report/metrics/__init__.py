"""Metrics of a comparison, one a file, named after the task that they evaluate."""
