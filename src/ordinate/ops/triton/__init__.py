"""Kernels for GPUs in Triton, which is imported when a kernel is first launched and never before."""
