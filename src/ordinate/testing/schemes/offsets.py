"""Agreement of what schemes say of their offsets with the pairwise hooks."""

from dataclasses import replace

import torch

from ordinate.core.geometry import Geometry
from ordinate.ops.blocks import offset_geometry
from ordinate.schemes._fast_forms import log_bias_of, reach_of, slopes_of, vectors_of
from ordinate.testing.case import HEADS, KV_HEADS, SchemeCase, random_qkv
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

TOKENS = 40


def relative_vectors_agree_with_the_pairwise_hooks(case: SchemeCase) -> None:
    """Products of queries, keys and weights with the vectors of each offset, clipped to the reach, agree."""
    case.skip_unless_hook("content_bias", "value_bias")
    scheme = case.scheme()
    for where in (Geometry.causal(TOKENS), Geometry.full(TOKENS)):
        where = case.with_axes(where)
        made = vectors_of(scheme, offset_geometry(where, 0, 2 * TOKENS - 1))
        if made is None:
            raise InapplicableError("it has no relative vectors")
        offset = TOKENS - 1 - torch.arange(2 * TOKENS - 1)
        # beyond the reach, all offsets of one side share a vector
        beyond = torch.where(offset > 0, 0, 2 * TOKENS - 2)
        entry = torch.where(offset.abs() >= made.reach, beyond, torch.arange(2 * TOKENS - 1))
        entry = entry[torch.arange(TOKENS) - torch.arange(TOKENS)[:, None] + TOKENS - 1]
        q, k, v = random_qkv(1, TOKENS)
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        asked, held, carried = (
            None if x is None else x.expand(HEADS, 2 * TOKENS - 1, -1)[:, entry]
            for x in (made.query_vectors, made.key_vectors, made.value_vectors)
        )
        found = torch.zeros(1, HEADS, TOKENS, TOKENS, dtype=q.dtype)
        found = found if asked is None else found + torch.einsum("bhid,hijd->bhij", q, asked)
        found = found if held is None else found + torch.einsum("bhjd,hijd->bhij", k, held)
        found = found if made.bias is None else found + made.bias.expand(HEADS, -1)[:, entry]
        weights, seen = (q @ k.mT).softmax(-1), where.visible[:, None]
        exact = scheme.content_bias(q, k, where)
        if exact is not None:
            assert_as_close(found * seen, exact * seen, exact * seen, what="the content bias from its vectors")
        exact = scheme.value_bias(weights * seen, where)
        if exact is not None:
            assert carried is not None, "value_bias returns a term that its vectors do not have"
            found = torch.einsum("bhij,hije->bhie", weights * seen, carried)
            assert_as_close(found, exact, exact, what="the output term from its vectors")


def _places() -> list[Geometry]:
    """Geometries whose positions are the indices in memory, near the start of a text and far from it."""
    far = torch.arange(3000, 3000 + TOKENS)[None, :, None]
    return [Geometry.causal(TOKENS), Geometry.full(TOKENS), Geometry.from_positions(far)]


def the_declared_form_of_the_bias_agrees_with_it(case: SchemeCase) -> None:
    """Beyond `bias_reach` the bias of a side is one number; `linear_bias` and `log_bias` give the same bias."""
    case.skip_unless_hook("bias")
    scheme = case.scheme()
    slopes, reach = slopes_of(scheme, Geometry.causal(TOKENS)), reach_of(scheme)
    curves = [(where, log_bias_of(scheme, where)) for where in _places()]
    if slopes is None and reach is None and curves[0][1] is None:
        raise InapplicableError("it declares no form")
    for where, curve in curves:
        if curve is not None:
            bias, made = scheme.bias(where), curve.bias(where.offset[..., 0].abs().double())
            assert bias is not None, "log_bias is declared, but there is no bias"
            exact = bias * where.visible[:, None]
            assert_as_close(made.to(bias) * where.visible[:, None], exact, exact, what="the bias from its logarithms")
    if slopes is None and reach is None:
        return
    for where in (Geometry.causal(TOKENS), Geometry.full(TOKENS)):
        # offsets from -2 reach to 2 reach; keys after the query are masked under a causal mask
        tokens = TOKENS if reach is None else 4 * reach + 1
        line = offset_geometry(replace(where, start=tokens // 2 - TOKENS + 1), 0, tokens)
        bias, offset = scheme.bias(line), line.offset[0, 0, :, 0]
        assert bias is not None, "bias_reach or linear_bias is declared, but there is no bias"
        seen = offset >= (0 if where.is_causal else -tokens)
        bias = bias[0, :, 0]
        if slopes is not None:
            made = -slopes[:1].T * offset.clamp(min=0) - slopes[1:].T * (-offset).clamp(min=0)
            assert_as_close(made.to(bias) * seen, bias * seen, bias * seen, what="the bias from its slopes")
        if reach is not None:
            for side in (offset >= reach, (offset <= -reach) & seen):
                far = bias[:, side]
                assert (far == far[:, :1]).all(), f"the bias changes beyond its reach of {reach}"
