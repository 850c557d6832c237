"""Softmax attention with data-dependent Householder-like transitions between query and key (PaTH), in chunks.

    score(i, j) = q_i H_i H_(i-1) .. H_(j+1) k_j^T scale,     H_t = I - beta_t w_t^T w_t

Within a chunk the products have the form I - W^T T W (the UT transform), so that all scores of a chunk take one
triangular solve. For earlier chunks, keys are carried to the end of their chunk, queries to the begin of theirs, and
from there chunk by chunk: each step compares all chunks of queries with the chunks of keys at one distance.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.shapes import Outputs, Queries
from ordinate.core.tensors import without_autocast
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.decay import split_chunks
from ordinate.ops.scalar_decay import LogDecays

Blocks = Float[Tensor, "b h chunks size d"]
Products = Float[Tensor, "b h chunks d d"]
# of past and new tokens
CarriedKeys = Float[Tensor, "b h m d"]


@dataclass(frozen=True, eq=False)
class PastKeys:
    """Keys and values of past tokens.

    Args:
        k: keys, carried through the transitions up to the last token.
        v: values.
        real: False at padding.
    """

    k: Queries
    v: Outputs
    real: Bool[Tensor, "b i"]


def path_attention(
    q: Queries, k: Queries, v: Outputs, w: Queries, rates: LogDecays, past: PastKeys, real: Bool[Tensor, "b i"]
) -> tuple[Outputs, CarriedKeys]:
    """Return the output of each query, and all keys, carried to the last token.

    Args:
        q: queries of the new tokens, times the scale; in float32 or wider, as are the others.
        k: their keys.
        v: their values.
        w: directions of the transitions, of norm 1; 0 at padding.
        rates: beta.
        past: keys and values of the past, of no tokens if there is none.
        real: False at padding among the new tokens, whose outputs are their own values.
    """
    y, before, new = _path_in_chunks(q, k, v, w, rates, past.k, past.v, torch.cat([past.real, real], 1))
    return y, torch.cat([before, new], 2)


@custom_operator("v", "past_k", "k")
def _path_in_chunks(
    q: Queries,
    k: Queries,
    v: Outputs,
    w: Queries,
    rates: LogDecays,
    past_k: CarriedKeys,
    past_v: Float[Tensor, "b h m e"],
    real: Bool[Tensor, "b all"],
) -> tuple[Outputs, CarriedKeys, Queries]:
    """Return the output of each query, and the keys of the past and of the new tokens, carried to the last token.

    Args:
        q, k, v, w, rates: as in `path_attention`.
        past_k, past_v: keys and values of the past.
        real: False at padding, of past and new tokens.
    """
    past_real, new_real = real.split([past_k.shape[2], k.shape[2]], 1)
    # long products need float32: autocast would compute them in 16 bits
    with without_autocast(q):
        asks, keys, values, ways, shares = (split_chunks(x) for x in (q, k, v, w, rates[..., None]))
        own = _within(asks, keys, ways, shares)
        seen = split_chunks(new_real[:, None, :, None].to(q.dtype))[..., 0] > 0
        places = torch.arange(asks.shape[3], device=q.device)
        # a padding query sees itself, so that its softmax is defined
        local = (seen[..., None, :] & (places <= places[:, None])) | (places == places[:, None])
        parts = [(own.scores.masked_fill(~local, -torch.inf), values)]
        reached, begun = own.asks, [own.asks[:, :, :1]]
        for distance in range(1, asks.shape[2]):
            there = slice(0, asks.shape[2] - distance)
            scores = reached[:, :, 1:] @ own.keys[:, :, there].mT
            parts.append((scores.masked_fill(~seen[:, :, there, None], -torch.inf), values[:, :, there]))
            reached = reached[:, :, 1:] @ own.moves[:, :, there]
            begun.append(reached[:, :, :1])
        before = torch.cat(begun, 2).flatten(2, 3) @ past_k.mT
        before = before.masked_fill(~past_real[:, None, None], -torch.inf).unflatten(2, asks.shape[2:4])
        y = _attended(parts, before, past_v)
        return y.flatten(2, 3)[:, :, : v.shape[2]], *_carried(own, past_k, k.shape[2])


@dataclass(frozen=True, eq=False)
class _Within:
    """What a chunk does by itself.

    Args:
        scores: scores of the pairs of its tokens, where the key is not after the query.
        asks: queries, carried to the begin of the chunk.
        keys: keys, carried to its end.
        moves: product of its transitions, the last one first.
    """

    scores: Float[Tensor, "b h chunks size size"]
    asks: Blocks
    keys: Blocks
    moves: Products


def _within(asks: Blocks, keys: Blocks, ways: Blocks, shares: Float[Tensor, "b h chunks size 1"]) -> _Within:
    overlap = (shares * (ways @ ways.mT)).tril(-1)
    known = torch.cat([shares * ways, (shares * (ways @ keys.mT)).tril(-1)], -1)
    solved = torch.linalg.solve_triangular(overlap, known, upper=False, unitriangular=True)
    turned, taken = solved.split([ways.shape[4], ways.shape[3]], -1)
    along = (asks @ ways.mT).tril()
    identity = torch.eye(ways.shape[4], dtype=ways.dtype, device=ways.device)
    return _Within(
        asks @ keys.mT - along @ taken,
        asks - along @ turned,
        keys - taken.mT @ ways,
        identity - ways.mT @ turned,
    )


def _attended(
    parts: list[tuple[Tensor, Tensor]], before: Float[Tensor, "b h chunks size past"], values: Outputs
) -> Blocks:
    """Softmax over the parts of the scores, of the past and of the chunks at each distance, times the values."""
    highest = parts[0][0].amax(-1)
    if before.shape[-1]:
        highest = highest.maximum(before.amax(-1))
    for distance, (scores, _) in enumerate(parts[1:], 1):
        later = highest[:, :, distance:].maximum(scores.amax(-1))
        highest = torch.cat([highest[:, :, :distance], later], 2)
    highest = highest.detach()[..., None]
    weights = torch.exp(before - highest)
    total, y = weights.sum(-1, keepdim=True), weights @ values[:, :, None]
    for distance, (scores, there) in enumerate(parts):
        weights = torch.exp(scores - highest[:, :, distance:])
        total = _add_later(total, weights.sum(-1, keepdim=True), distance)
        y = _add_later(y, weights @ there, distance)
    return y / total


def _add_later(x: Tensor, more: Tensor, distance: int) -> Tensor:
    """Add to all chunks but the first few."""
    return torch.cat([x[:, :, :distance], x[:, :, distance:] + more], 2)


def _carried(own: _Within, past: CarriedKeys, tokens: int) -> tuple[CarriedKeys, Queries]:
    """Past and new keys, carried to the last token."""
    rest, done = torch.eye(past.shape[3], dtype=past.dtype, device=past.device).expand_as(own.moves[:, :, 0]), []
    for chunk in range(own.moves.shape[2] - 1, -1, -1):
        done.append(own.keys[:, :, chunk] @ rest.mT)
        rest = rest @ own.moves[:, :, chunk]
    return past @ rest.mT, torch.cat(done[::-1], 2)[:, :, :tokens]
