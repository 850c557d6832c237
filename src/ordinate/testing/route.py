"""What every way to compute attention must do: agree with the reference, forward and backward."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ordinate.attention import PLAIN, attend
from ordinate.geometry import Geometry
from ordinate.route import Formula
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Keys, Outputs, Queries, Values
from ordinate.testing.tolerance import assert_as_close


def _padded(tokens: int, *, left: bool) -> Geometry:
    lengths = torch.tensor([[tokens], [(tokens + 1) // 2]])
    place = torch.arange(tokens)
    return Geometry.padded(place >= tokens - lengths if left else place < lengths)


def _packed(tokens: int) -> Geometry:
    lengths = [tokens // 3, 1, tokens - tokens // 3 - 1]
    return Geometry.packed([length for length in lengths if length > 0])


GEOMETRIES: dict[str, Callable[[int], Geometry]] = {
    "causal": Geometry.causal,
    "full": Geometry.full,
    "window": lambda tokens: Geometry.causal(tokens, window=3),
    "packed": _packed,
    "left": lambda tokens: _padded(tokens, left=True),
    "right": lambda tokens: _padded(tokens, left=False),
    "cross": lambda tokens: Geometry.cross(tokens, tokens + 5),
    "cached": lambda tokens: Geometry.causal(tokens, cached=4),
    "newest": lambda tokens: Geometry.causal(1, cached=tokens),
    "two sides": lambda tokens: Geometry.full(tokens, window=2),
}
"""Each way for tokens to see each other, for a number of tokens; those with padding tell two rows apart."""


def draw(
    where: Geometry, *, batch: int = 2, heads: int = 4, kv_heads: int = 2, width: int = 8, type: torch.dtype
) -> tuple[Queries, Keys, Values]:
    """Random queries, keys and values for a geometry, which want gradients."""
    queries, keys = where.shape
    q = torch.randn(batch, heads, queries, width, dtype=torch.float64)
    k, v = torch.randn(2, batch, kv_heads, keys, width, dtype=torch.float64)
    q, k, v = (x.to(type).requires_grad_() for x in (q, k, v))
    return q, k, v


def assert_agrees(
    route: str | None,
    scheme: Scheme,
    where: Geometry,
    q: Queries,
    k: Keys,
    v: Values,
    formula: Formula = PLAIN,
) -> None:
    """Raise an AssertionError unless this route gives what the reference gives, and the same gradients.

    Args:
        route: its name; None: the one that `attend` picks.
        scheme: a scheme; its parameters' gradients are compared too.
        where: a geometry.
        q: queries.
        k: keys.
        v: values.
        formula: with a cap or sinks, perhaps; the sinks' gradients are compared too.
    """
    upstream = torch.randn(*q.shape[:3], v.shape[3], dtype=torch.float64)
    wide, inputs = deepcopy(scheme).double(), [x.detach() for x in (q, k, v)]
    exact = _results(partial(_attend, "reference"), wide, where, [x.double() for x in inputs], upstream, formula)
    plain = _results(partial(_attend, "reference"), scheme, where, inputs, upstream, formula)
    other = _results(_reordered, scheme, where, inputs, upstream, formula)
    out = _results(partial(_attend, route), scheme, where, inputs, upstream, formula)
    for name, true in exact.items():
        # one order of summation may be lucky: the plain formula is as far off as the worse of two orders
        farther = (plain[name] - true).abs() >= (other[name] - true).abs()
        usual = torch.where(farther, plain[name], other[name])
        assert_as_close(out[name], usual, true, factor=2.0 if name == "output" else 3.0, what=name)


def _attend(route: str | None, q: Queries, k: Keys, v: Values, at: Placed, formula: Formula) -> Outputs:
    return attend(q, k, v, at, route=route, formula=formula)


def _reordered(q: Queries, k: Keys, v: Values, at: Placed, formula: Formula) -> Outputs:
    """The formula with channels, queries and keys in reverse."""
    groups, where = q.shape[1] // k.shape[1], at.where
    k, v = (x.repeat_interleave(groups, 1).flip(2) for x in (k, v))
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = formula.bend(q.flip(2, 3).to(wide) @ k.flip(3).to(wide).mT / math.sqrt(q.shape[3]))
    bias, hidden = at.scheme.bias(where), ~where.visible[:, None].flip(2, 3)
    scores = scores if bias is None else scores + bias.flip(2, 3)
    scores = scores.masked_fill(hidden & ~hidden.all(-1, keepdim=True), float("-inf"))
    weights = torch.cat([formula.column(scores), scores], -1).softmax(-1)[..., -scores.shape[-1] :]
    return (weights.masked_fill(hidden, 0.0).to(v.dtype) @ v).flip(2)


def _results(
    compute: Callable[[Queries, Keys, Values, Placed, Formula], Outputs],
    scheme: Scheme,
    where: Geometry,
    inputs: list[Tensor],
    upstream: Tensor,
    formula: Formula,
) -> dict[str, Tensor]:
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    sinks = [] if formula.sinks is None else [formula.sinks.detach().to(q.dtype).requires_grad_()]
    out = compute(q, k, v, scheme.at(where), replace(formula, sinks=sinks[0]) if sinks else formula)
    learned = list(scheme.parameters()) if "bias" in scheme.hooks else []
    gradients = torch.autograd.grad(out, [q, k, v, *sinks, *learned], upstream.to(out.dtype))
    given = 3 + len(sinks)
    results = {"output": out.detach(), "gradient of the inputs": torch.cat([x.flatten() for x in gradients[:given]])}
    if learned:
        results["gradient of the scheme"] = torch.cat([x.flatten() for x in gradients[given:]])
    return results
