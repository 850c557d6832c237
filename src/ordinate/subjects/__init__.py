"""Models that can be measured, one kind a file."""
