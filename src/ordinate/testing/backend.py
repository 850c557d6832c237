"""Test of an attention backend: output and gradients must agree with the reference backend."""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ordinate.attention._attend import STANDARD, attend
from ordinate.attention._backend import ScoreOptions
from ordinate.core.attention_chunks import in_chunks
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, Outputs, Queries, Values
from ordinate.schemes._scheme import Placed, Scheme
from ordinate.testing.tolerance import assert_as_close


def _padded(tokens: int, *, left: bool) -> Geometry:
    lengths = torch.tensor([[tokens], [(tokens + 1) // 2]])
    index = torch.arange(tokens)
    return Geometry.padded(index >= tokens - lengths if left else index < lengths)


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
    "chunks": lambda tokens: in_chunks(Geometry.causal(tokens), 4),
}
"""Geometries of all kinds of visibility, as functions of the number of tokens; padded ones have a batch of two."""

PIVOTS = (0.0, 0.2, 0.4, 0.6)
"""Numbers up to log 2, by which the weights that a fused kernel rounds are smaller: each rounds them otherwise."""


def random_qkv(
    where: Geometry, *, batch: int = 2, heads: int = 4, kv_heads: int = 2, width: int = 8, dtype: torch.dtype
) -> tuple[Queries, Keys, Values]:
    """Return random queries, keys and values for a geometry, with requires_grad set."""
    queries, keys = where.shape
    q = torch.randn(batch, heads, queries, width, dtype=torch.float64)
    k, v = torch.randn(2, batch, kv_heads, keys, width, dtype=torch.float64)
    q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
    return q, k, v


def assert_agrees(
    backend: str | None,
    scheme: Scheme,
    where: Geometry,
    q: Queries,
    k: Keys,
    v: Values,
    options: ScoreOptions = STANDARD,
) -> None:
    """Raise an AssertionError unless output and gradients of this backend agree with the reference.

    Args:
        backend: name of the backend; None: the one that `attend` selects.
        scheme: a scheme; gradients of its parameters are compared too. With float64 queries it is converted too.
        where: a geometry.
        q: queries.
        k: keys.
        v: values.
        options: softcap and sinks; gradients of the sinks are compared too.
    """
    upstream = torch.randn(*q.shape[:3], v.shape[3], dtype=torch.float64)
    wide, inputs = deepcopy(scheme).double(), [x.detach() for x in (q, k, v)]
    scheme = wide if q.dtype == torch.float64 else scheme
    exact = _results(partial(_attend, "reference"), wide, where, [x.double() for x in inputs], upstream, options)
    plain = _results(partial(_attend, "reference"), scheme, where, inputs, upstream, options)
    other = _results(_reordered, scheme, where, inputs, upstream, options)
    # without keys nothing is rounded, and in float64 the limit is another
    pivots = PIVOTS if q.dtype != torch.float64 and k.shape[2] else ()
    fused = [_results(partial(_fused, pivot), scheme, where, inputs, upstream, options) for pivot in pivots]
    out = _results(partial(_attend, backend), scheme, where, inputs, upstream, options)
    for name, true in exact.items():
        # the error of one summation order may be small by chance, so the worse of two orders sets the tolerance; a
        # scheme has few parameters, whose gradients sum up what kernels round
        given = [plain, other, *(fused if name == "gradient of the scheme" else ())]
        usual = _farthest(true, *(x[name] for x in given))
        assert_as_close(out[name], usual, true, factor=2.0 if name == "output" else 3.0, what=name)


def _attend(backend: str | None, q: Queries, k: Keys, v: Values, at: Placed, options: ScoreOptions) -> Outputs:
    return attend(q, k, v, at, backend=backend, score_options=options)


def _reordered(q: Queries, k: Keys, v: Values, at: Placed, options: ScoreOptions) -> Outputs:
    """Compute attention with channels, queries and keys in reverse order, to vary the order of summation."""
    scores, v, hidden = _reversed(q, k, v, at, options)
    weights = scores.softmax(-1)[..., -v.shape[2] :].masked_fill(hidden, 0.0)
    return (weights.to(v.dtype) @ v).flip(2)


def _fused(pivot: float, q: Queries, k: Keys, v: Values, at: Placed, options: ScoreOptions) -> Outputs:
    """Compute attention with the roundings of kernels that store no weights: see `_StoredOutput`."""
    return _StoredOutput.apply(*_reversed(q, k, v, at, options), pivot).flip(2)


def _reversed(q: Queries, k: Keys, v: Values, at: Placed, options: ScoreOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores, those of sinks first, the values of each head, and what is hidden: all in reverse order."""
    groups, where = q.shape[1] // k.shape[1], at.where
    k, v = (x.repeat_interleave(groups, 1).flip(2) for x in (k, v))
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = options.apply_softcap(q.flip(2, 3).to(wide) @ k.flip(3).to(wide).mT / math.sqrt(q.shape[3]))
    bias, hidden = at.scheme.bias(where), ~where.visible[:, None].flip(2, 3)
    scores = scores if bias is None else scores + bias.flip(2, 3)
    scores = scores.masked_fill(hidden & ~hidden.all(-1, keepdim=True), float("-inf"))
    return torch.cat([options.sink_scores(scores), scores], -1), v, hidden


class _StoredOutput(torch.autograd.Function):
    """The formula of kernels that store the output and the log-sum-exp, and no weights.

    The weights that multiply values are rounded to the dtype of v before they are divided by their sum, relative to
    the highest score plus a pivot: any number, since kernels divide by the highest of the keys seen so far. With do
    the gradient of the output o, the gradient of the scores is P (do v^T - sum(do o)). In 16 bits o is rounded, so
    that the gradients of a row do not sum to zero as those of a softmax do; a bias, which sums over rows, has it all.
    Source: Dao et al. 2022, FlashAttention, https://arxiv.org/abs/2205.14135, appendix B.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, v: Tensor, hidden: Tensor, pivot: float) -> Tensor:
        lse, top = scores.logsumexp(-1, keepdim=True), scores.amax(-1, keepdim=True) + pivot
        sinks, scores = scores.tensor_split([scores.shape[-1] - v.shape[2]], -1)
        sinks, weights = ((x - lse).exp() for x in (sinks, scores))
        rounded = (scores - top).exp().masked_fill(hidden, 0.0).to(v.dtype).to(scores.dtype)
        out = (rounded @ v.to(scores.dtype) * (top - lse).exp()).to(v.dtype)
        ctx.save_for_backward(sinks, weights.masked_fill(hidden, 0.0), v, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (sinks, weights, v, out), (gradient,) = ctx.saved_tensors, gradients
        given, held, made = (x.to(weights.dtype) for x in (gradient, v, out))
        delta = (given * made).sum(-1, keepdim=True)
        to_scores = torch.cat([-sinks * delta, weights * (given @ held.mT - delta)], -1)
        return to_scores, weights.to(v.dtype).mT @ gradient, None, None


def _farthest(exact: Tensor, *results: Tensor) -> Tensor:
    """Return of each number the result that is farthest from the exact one."""
    found, *others = results
    for other in others:
        found = torch.where((found - exact).abs() >= (other - exact).abs(), found, other)
    return found


def _results(
    compute: Callable[[Queries, Keys, Values, Placed, ScoreOptions], Outputs],
    scheme: Scheme,
    where: Geometry,
    inputs: list[Tensor],
    upstream: Tensor,
    options: ScoreOptions,
) -> dict[str, Tensor]:
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    sinks = [] if options.sinks is None else [options.sinks.detach().to(q.dtype).requires_grad_()]
    out = compute(q, k, v, scheme.at(where), replace(options, sinks=sinks[0]) if sinks else options)
    learned = list(scheme.parameters()) if "bias" in scheme.hooks else []
    gradients = torch.autograd.grad(out, [q, k, v, *sinks, *learned], upstream.to(out.dtype))
    given = 3 + len(sinks)
    results = {"output": out.detach(), "gradient of the inputs": torch.cat([x.flatten() for x in gradients[:given]])}
    if learned:
        results["gradient of the scheme"] = torch.cat([x.flatten() for x in gradients[given:]])
    return results


def assert_second_gradients_agree(
    backend: str | None, scheme: Scheme, where: Geometry, dtype: torch.dtype = torch.float64, **options: Any
) -> None:
    """Raise an AssertionError unless gradients of gradients by this backend agree with the reference.

    Args:
        backend: name of the backend; None: the one that `attend` selects.
        scheme: a scheme; its parameters are differentiated too.
        where: a geometry.
        dtype: dtype of queries, keys and values.
        options: further arguments of `attend`; sinks are differentiated too.
    """
    inputs = random_qkv(where, dtype=dtype)
    made = _second_gradients(backend, scheme, where, inputs, options)
    plain = _second_gradients("reference", scheme, where, inputs, options)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = _second_gradients("reference", deepcopy(scheme).double(), where, wide, options)
    for name, one, usual, true in zip(("first", "second"), made, plain, exact, strict=True):
        # second derivatives are differences of large numbers: the plain formula's error is not an upper bound
        assert_as_close(one, usual, true, factor=6.0, what=f"the {name} gradients by {backend}")


def _second_gradients(
    backend: str | None, scheme: Scheme, where: Geometry, inputs: Sequence[Tensor], options: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the sum of squares of the output, and those of the sum of the gradients' squares."""
    sinks = getattr(options.get("score_options"), "sinks", None)
    learned = [x for x in scheme.parameters() if x.requires_grad]
    leaves = [*inputs, *learned, *([] if sinks is None else [sinks])]
    q, k, v = inputs
    out = attend(q, k, v, scheme.at(where), backend=backend, **options)
    first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True, materialize_grads=True)
    # of the parameters too: they are one of the paths by which second derivatives get lost
    total = sum((x.square().sum() for x in first), torch.zeros((), dtype=out.dtype))
    assert total.requires_grad, f"the gradients by {backend} have no graph: second derivatives are dropped"
    second = torch.autograd.grad(total, leaves, materialize_grads=True)
    return (
        torch.cat([x.detach().flatten().to(out.dtype) for x in first]),
        torch.cat([x.flatten().to(out.dtype) for x in second]),
    )
