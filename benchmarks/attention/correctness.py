"""Check a backend against the reference before it is timed."""

from functools import cache

import torch

from benchmarks.attention.contenders import make
from benchmarks.harness.workload import HEAD_WIDTH
from ordinate import Geometry, explain
from ordinate.testing.backend import assert_agrees, random_qkv


@cache
def is_green(scheme: str, backend: str | None) -> bool:
    """Whether a backend agrees with the reference, forward and backward, on the first case that it supports."""
    marks = make(scheme, 4)
    for tokens in (300, 1100):
        where = Geometry.causal(tokens)
        q, k, v = random_qkv(where, batch=1, width=HEAD_WIDTH, dtype=torch.float32)
        try:
            explain(q, k, v, marks.at(where), backend=backend)
            assert_agrees(backend, marks, where, q, k, v)
            return True
        except ValueError:
            # too few tokens for this backend
            continue
        except AssertionError as error:
            print(f"not timed: {scheme} by {backend}: {error}")
            return False
    return False
