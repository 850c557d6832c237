"""Bootstrap, permutation tests, multiple testing and variance components."""
