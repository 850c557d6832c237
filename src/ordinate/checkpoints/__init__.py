"""Checkpoints of published models: their files, and what families have in common."""
