"""Probes: questions about position in a model, one per file."""
