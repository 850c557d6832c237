"""Replications: one file a paper."""
