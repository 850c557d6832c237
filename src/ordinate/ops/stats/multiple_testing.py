"""Multiple testing: false discovery rate control over many heads (Benjamini and Hochberg, 1995)."""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray


def benjamini_hochberg(p: Float[ndarray, "*tests"]) -> Float[ndarray, "*tests"]:
    """Benjamini-Hochberg adjusted p-values: the smallest false discovery rate at which each test is rejected.

        q_(i) = min over k >= i of  m p_(k) / k,    p sorted, m tests

    Args:
        p: the p-value of each test, independent or positively dependent.
    Source: Benjamini and Hochberg 1995, https://doi.org/10.1111/j.2517-6161.1995.tb02031.x
    """
    flat = np.asarray(p, float).ravel()
    order = np.argsort(flat)
    scaled = flat[order] * flat.size / np.arange(1, flat.size + 1)
    lowest = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1)
    found = np.empty_like(flat)
    found[order] = lowest
    return found.reshape(np.shape(p))


def discoveries(p: Float[ndarray, "*tests"], rate: float = 0.05) -> Bool[ndarray, "*tests"]:
    """Mark the tests that are rejected at this false discovery rate."""
    return benjamini_hochberg(p) <= rate
