"""Generalised delta rule with data-dependent decay (RWKV-7, DeltaNet, gated DeltaNet, KDA), in chunks.

    S_t = diag(e^{w_t}) S_{t-1} + b_t^T (a_t S_{t-1}) + k_t^T v_t,     y_t = r_t S_t

With b = -a this is the delta rule: the value stored at key a is erased, and v is written at k. Within a chunk, all
a_t S_{t-1} are the solution of one triangular system (the WY representation); the state links the chunks.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs, Queries
from ordinate.core.tensors import without_autocast
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.decay import (
    Chunks,
    decayed_products,
    exclusive_cumsum,
    reverse_exclusive_cumsum,
    scan_chunks,
    split_chunks,
)
from ordinate.ops.native import recurrence
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.native.scan import check_shapes, unsupported_reason
from ordinate.ops.scalar_decay import LogDecays, chunk_decays

Column = Float[Tensor, "b h chunks size 1"]
# decays of all channels, or of each, into tokens and from them; products of queries with keys, and shares of those of
# keys with earlier keys
Decayed = tuple[
    Float[Tensor, "b h chunks size c"],
    Float[Tensor, "b h chunks size c"],
    Float[Tensor, "b h chunks size size"],
    Float[Tensor, "b h chunks size size"],
]


@custom_operator("v", "start")
def delta_rule(
    r: Queries, k: Queries, v: Outputs, w: Queries, a: Queries, b: Queries, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Return the output of each token and the final state.

    Args:
        r: receptance (the queries), in float32 or wider, as are the others.
        k: keys; 0 at padding.
        v: values.
        w: log decay of each channel, negative.
        a: keys at which the state is read before the update; 0 at padding.
        b: keys at which what was read is written.
        start: initial state, after earlier tokens; zeros if there are none.
    """
    batch, heads, tokens, width = r.shape
    check_shapes(
        **{name: (x, r.shape) for name, x in (("k", k), ("w", w), ("a", a), ("b", b))},
        v=(v, (batch, heads, tokens, v.shape[-1])),
        start=(start, (batch, heads, width, v.shape[-1])),
    )
    # one pass in C++ where there is a compiler; results agree up to rounding
    if unsupported_reason("recurrence", r, k, v, w, a, b, start) is None:
        return recurrence.delta_rule(_in_chunks, r, k, v, w, (a, b), start)
    return _in_chunks(r, w, k, v, a, b, start)


def _in_chunks(
    r: Queries, w: Queries, k: Queries, v: Outputs, a: Queries, b: Queries, start: Matrices
) -> tuple[Outputs, Matrices]:
    # long sums need float32: autocast would compute these products in 16 bits
    with without_autocast(r):
        asks, keys, values, logs, seen, moved = (split_chunks(x) for x in (r, k, v, w, a, b))
        decay_before, left = torch.exp(exclusive_cumsum(logs)), torch.exp(reverse_exclusive_cumsum(logs))
        # the output is read after the update: earlier writes have decayed once more by then
        late = asks * torch.exp(logs)
        products = decayed_products(torch.stack([seen, late]), torch.stack([moved, keys]), logs)
        own = [torch.diag_embed((asks * x).sum(-1)) for x in (moved, keys)]
        (seen_moved, seen_keys), (asks_moved, asks_keys) = products[0], products[1] + torch.stack(own)
        # a_t S_{t-1} as a linear function of the state before the chunk, plus a part from the chunk's own values;
        # both right-hand sides share one triangular solve
        known = torch.cat([seen * decay_before, seen_keys @ values], -1)
        solved = torch.linalg.solve_triangular(-seen_moved, known, upper=False, unitriangular=True)
        of_state, of_chunk = solved.split([k.shape[3], v.shape[3]], -1)
        kept = torch.diag_embed(torch.exp(logs.sum(3))) + (moved * left).mT @ of_state
        states, last = scan_chunks(start, kept, (moved * left).mT @ of_chunk + (keys * left).mT @ values)
        saw = of_state @ states + of_chunk
        y = (late * decay_before) @ states + asks_moved @ saw + asks_keys @ values
        return y.flatten(2, 3)[:, :, : v.shape[2]], last


@custom_operator("v", "start")
def gated_delta_rule(
    q: Queries, k: Queries, v: Outputs, rates: LogDecays, logs: LogDecays | Queries | None, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Delta rule with a decay of each head, or of each channel of its keys, and token.

        S_t = (I - beta_t k_t^T k_t) diag(e^{w_t}) S_{t-1} + beta_t k_t^T v_t,     y_t = q_t S_t

    With one decay for all channels this is gated DeltaNet, with one for each KDA, and without decay DeltaNet.

    Args:
        q: queries, in float32 or wider, as are the others.
        k: keys, of norm 1; 0 at padding.
        v: values.
        rates: beta, the share of what is stored at the key that the value replaces.
        logs: w, log decay of each head, or of each channel of its keys, not positive; None: no decay.
        start: initial state, after earlier tokens; zeros if there are none.
    Returns:
        The output of each token, and the final state.
    """
    batch, heads, tokens, width = q.shape
    logs = torch.zeros_like(rates) if logs is None else logs
    check_shapes(
        k=(k, q.shape),
        v=(v, (batch, heads, tokens, v.shape[-1])),
        rates=(rates, (batch, heads, tokens)),
        logs=(logs, q.shape if logs.ndim == 4 else (batch, heads, tokens)),
        start=(start, (batch, heads, width, v.shape[-1])),
    )
    w = logs if logs.ndim == 4 else logs[..., None]
    # one pass in C++ where there is a compiler, as the general rule; results agree up to rounding
    if unsupported_reason("recurrence", q, k, v, rates, logs, start) is None:
        seen, moved = -k * torch.exp(w), k * rates[..., None]
        return recurrence.delta_rule(_in_chunks, q, k, v * rates[..., None], w.expand_as(k), (seen, moved), start)
    return _gated_in_chunks(q, k, v, rates, w, start)


def _gated_in_chunks(
    q: Queries, k: Queries, v: Outputs, rates: LogDecays, logs: Float[Tensor, "b h n c"], start: Matrices
) -> tuple[Outputs, Matrices]:
    # long sums need float32: autocast would compute these products in 16 bits
    with without_autocast(q):
        asks, keys, values, shares, fades = (split_chunks(x) for x in (q, k, v, rates[..., None], logs))
        pairs = _decayed_pairs if logs.shape[3] > 1 else _equally_decayed_pairs
        enter, leave, asked, overlap = pairs(asks, keys, shares, fades)
        # what each token writes at its key, as a linear function of the state before the chunk, plus a part from the
        # chunk's own values; both right-hand sides share one triangular solve
        known = torch.cat([shares * enter * keys, shares * values], -1)
        solved = torch.linalg.solve_triangular(overlap, known, upper=False, unitriangular=True)
        of_state, of_chunk = solved.split([k.shape[3], v.shape[3]], -1)
        late = keys * leave
        kept = torch.diag_embed(enter[..., -1, :].expand_as(keys[..., 0, :])) - late.mT @ of_state
        states, last = scan_chunks(start, kept, late.mT @ of_chunk)
        written = of_chunk - of_state @ states
        y = (asks * enter) @ states + asked @ written
        return y.flatten(2, 3)[:, :, : v.shape[2]], last


def _equally_decayed_pairs(asks: Chunks, keys: Chunks, shares: Column, logs: Column) -> Decayed:
    enter, leave, pairs = chunk_decays(logs[..., 0])
    overlap = (shares * (keys @ keys.mT) * pairs).tril(-1)
    return enter[..., None], leave[..., None], asks @ keys.mT * pairs, overlap


def _decayed_pairs(asks: Chunks, keys: Chunks, shares: Column, logs: Chunks) -> Decayed:
    # a product that is read after an update has decayed once more than those between its tokens
    late = torch.stack([asks, keys]) * torch.exp(logs)
    asked, overlap = decayed_products(late, keys[None], logs)[:, 0]
    own = torch.diag_embed((asks * keys).sum(-1))
    return torch.exp(logs.cumsum(-2)), torch.exp(reverse_exclusive_cumsum(logs)), asked + own, shares * overlap
