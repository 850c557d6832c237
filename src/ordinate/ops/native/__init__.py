"""C++ kernels, compiled on first use, with their Python wrappers."""
