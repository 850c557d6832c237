"""Benchmarks: most report ratios to a baseline measured in turns in the same process."""
