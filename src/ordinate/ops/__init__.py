"""Pure functions: attention kernels, linear algebra, statistics, and the C++ kernels in `native`."""
