"""Outputs of a model, and how far two of them are apart."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ordinate.pretrained.verification.result import Difference

Outputs = Mapping[str, Tensor]
"""Outputs of a model by their names: logits; or hidden states, pooled."""
Results = Mapping[str, Outputs]
"""Outputs by how they were computed: alone, padded, one token at a time."""
# parameters whose gradient is zero but for rounding are compared with the whole
SMALLEST_SHARE = 1e-3


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Return the outputs of several calls, one after another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def difference(between: str, out: Outputs, expected: Outputs, *, judged: bool = True) -> Difference:
    """Return how far outputs are from the expected ones: of several outputs the largest error."""
    # there is no pooled vector where the first column is padding
    pairs = [(out[name], expected[name]) for name in expected if name in out]
    error = max(_error(a, b) for a, b in pairs)
    return Difference(between, error, max(_largest(a, b) for a, b in pairs), judged)


def gradient_differences(between: str, out: Outputs, expected: Outputs, names: Mapping[str, str]) -> list[Difference]:
    """Return the differences of gradients: of all parameters together, and of the parameter that is farthest off.

    The error of one parameter is relative to its own norm, or to a thousandth of the norm of all; `names` are the
    names of parameters in the checkpoint.
    """
    norms = {name: _norm(expected[name]) for name in expected}
    whole = math.hypot(*norms.values())
    apart = {name: _norm(out[name].double() - expected[name].double()) for name in expected}
    shares = {name: _ratio(apart[name], max(norms[name], SMALLEST_SHARE * whole)) for name in expected}
    # nan is the largest
    worst = max(shares, key=lambda name: math.inf if math.isnan(shares[name]) else shares[name])
    largest = max(_largest(out[name], expected[name]) for name in expected)
    return [
        Difference(f"{between}, all parameters", _ratio(math.hypot(*apart.values()), whole), largest),
        Difference(f"{between}, {names.get(worst, worst)}", shares[worst], _largest(out[worst], expected[worst])),
    ]


def _error(a: Tensor, b: Tensor) -> float:
    return _ratio(_norm(a.double() - b.double()), _norm(b)) if a.shape == b.shape else math.inf


def _largest(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.shape == b.shape else math.inf


def _norm(x: Tensor) -> float:
    return float(x.double().norm())


def _ratio(apart: float, size: float) -> float:
    """Return the relative error; one that is no number counts as infinite."""
    if not (math.isfinite(apart) and math.isfinite(size)):
        return math.inf
    return apart / size if size else (math.inf if apart else 0.0)
