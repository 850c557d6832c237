"""Shared parts of the benchmarks: timing, memory, results, tables and charts."""
