"""Which of many heads can be told from chance, when looking at many makes some look unusual."""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray


def adjusted(p: Float[ndarray, "*tests"]) -> Float[ndarray, "*tests"]:
    """The smallest false discovery rate at which each test would be called a discovery.

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
    """Which tests are discoveries, of whom at most this share is expected to be false."""
    return adjusted(p) <= rate
