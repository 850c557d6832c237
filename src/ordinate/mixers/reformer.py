"""Reformer: attention within buckets of locality-sensitive hashing (LSH)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.core.tensors import autocasts, without_autocast
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.hashing import CandidatePairs, chunked_lsh_attention, dense_lsh_attention, hash_buckets
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.schemes._scheme import Placed

# with more buckets than this, a bucket is a pair of two smaller hashes, which needs fewer directions
MAX_SINGLE_HASH_BUCKETS = 128


@dataclass(frozen=True, eq=False)
class ReformerState(MixerState):
    """KV cache of the tokens that later ones may still attend to.

    Args:
        k: encoded keys.
        v: values.
        buckets: bucket of each token in each hash round.
    """

    k: Keys
    v: Values
    buckets: Int[Tensor, "b h rounds n"]


class Reformer(SequenceMixer[ReformerState]):
    """Reformer: attention limited to tokens in the same LSH bucket, which hold vectors of similar direction.

        q_j = x_j W,   k_j = q_j / |q_j|,   bucket(q) = argmax [q R; -q R],  R random, anew in each round
        y_i = sum_j softmax_j(q_i . k_j) v_j W_O  over all j that i meets in some round; itself only if no other

    In `strict` mode a token meets the `chunk_length` tokens before it in its bucket (in the bidirectional form also
    those after it). In `chunk` mode, the paper's, tokens are sorted by bucket and split into chunks; a token meets
    those of its own and the previous chunk. Chunk boundaries then depend on later tokens, so the causal form leaks
    some information about the future and does not support incremental decoding.

    Args:
        width: columns of the model.
        heads: heads; each has width / heads channels.
        max_length: sequence length that the default number of buckets is chosen for; longer ones are supported
            [tokens].
        chunk_length: attention span within a bucket, and length of a chunk [tokens].
        rounds: number of hash rounds; more rounds miss fewer pairs, at proportional cost.
        buckets: number of buckets; 1, or even. None: two for each `chunk_length` of `max_length`.
        mode: `strict` or `chunk`.
        divided: whether scores are also divided by sqrt(d) (lucidrains) or not (trax, transformers).

    Raises:
        ValueError: sizes that do not fit, an odd number of buckets.
    Source: Kitaev et al. 2020, section 2, https://arxiv.org/abs/2001.04451.
    Departs: `strict` is ours. Chunks look back within their own hash round, never into the previous one. A pair that
        meets in several rounds counts once, in the first, which is equivalent to the paper's division by the number
        of rounds. Hashes are computed before positions are encoded. There is no dropout of attention weights. Short
        sequences compute all scores and mask those of pairs that do not meet.
    """

    supported_hooks = frozenset({"remap_positions", "embed", "encode_query", "encode_key"})
    # the order of tokens within a bucket decides which pairs meet: equivariant only below one chunk
    permutation_equivariant = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        max_length: int = 1024,
        chunk_length: int = 64,
        rounds: int = 4,
        buckets: int | None = None,
        mode: Literal["strict", "chunk"] = "strict",
        divided: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"width": width, "heads": heads, "max_length": max_length, "chunk_length": chunk_length}
        for name, value in {**sizes, "rounds": rounds}.items():
            need_positive(name, value)
        check_heads(width, heads, heads)
        buckets = 2 * max(1, max_length // chunk_length) if buckets is None else buckets
        fits = buckets == 1 or (buckets > 0 and buckets % 2 == 0)
        need(fits, "buckets must be even, or 1", f"got {buckets}", "give an even number, or 1")
        self.heads, self.head_width = heads, width // heads
        self.chunk_length, self.rounds = chunk_length, rounds
        self.strictly_causal = self.supports_cache = self.strict = mode == "strict"
        half = 2 * max(1, round(buckets**0.5 / 2))
        self.factors = (buckets,) if buckets <= MAX_SINGLE_HASH_BUCKETS else (half, 2 * math.ceil(buckets / half / 2))
        self.scale = self.head_width**-0.5 if divided else 1.0
        self.project = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        columns = sum(factor // 2 for factor in self.factors)
        self.directions: Int[Tensor, "h d rounds columns"]
        # integers: conversion of the model to another dtype does not change them, and so no bucket
        directions = torch.empty(heads, self.head_width, rounds, columns, dtype=torch.int32)
        self.register_buffer("directions", directions)
        self.rehash()

    @torch.no_grad()
    def rehash(self, generator: torch.Generator | None = None) -> None:
        """Redraw the random directions of the hash; existing caches become invalid."""
        drawn = torch.randn(self.directions.shape, generator=generator, device=self.directions.device)
        self.directions.copy_((1024 * drawn).round())

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: ReformerState | None
    ) -> tuple[Tokens, ReformerState | None]:
        """Hash the tokens, and attend within buckets."""
        rounded = autocasts(x)
        wide = self.project(x).to(torch.promote_types(x.dtype, torch.float32))
        with without_autocast(x):
            q, v = rearrange(wide, "b n (two h d) -> two b h n d", two=2, h=self.heads)
            buckets = self._buckets(self._unrounded(x) if rounded else q, real)
            q, k = at.encode(q, _unit(q)).pair
            state = ReformerState(k, v, buckets) if state is None else _joined(state, ReformerState(k, v, buckets))
            y = self._compare(q * self.scale, state, at.where.is_causal)
        y = self.out(rearrange(y, "b h n d -> b n (h d)").to(x.dtype))
        return y, self._kept(state) if self.strict and at.where.is_causal else None

    @torch.no_grad()
    def _unrounded(self, x: Tokens) -> Queries:
        """Queries that autocast has not rounded, to hash: near the boundary of a bucket rounding would change it."""
        weight, bias = weight_and_bias(self.project)
        wide = torch.promote_types(weight.dtype, torch.float32)
        made = linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide))
        return rearrange(made[..., : x.shape[2]], "b n (h d) -> b h n d", h=self.heads)

    @property
    def _few(self) -> int:
        # number of keys up to which full scores cost no more than the chunks of all rounds
        return 2 * self.chunk_length * self.rounds

    @property
    def _padding(self) -> int:
        return math.prod(self.factors)

    def _buckets(self, q: Queries, real: Bool[Tensor, "b n"] | None) -> Int[Tensor, "b h rounds n"]:
        buckets = hash_buckets(q, self.directions, self.factors)
        return buckets if real is None else torch.where(real[:, None, None], buckets, self._padding)

    def _compare(self, q: Queries, known: ReformerState, hides_future: bool) -> Outputs:
        new, missing = q.shape[2], -known.k.shape[2] % self.chunk_length
        few = new <= self._few
        buckets = known.buckets if few else pad(known.buckets, (0, missing), value=self._padding)
        mates = CandidatePairs.of(buckets, self._padding, self.chunk_length, self.strict, hides_future)
        if few:
            return dense_lsh_attention(q, known.k, known.v, mates)
        q = pad(q, (0, 0, known.k.shape[2] - new, 0))
        q, k, v = (pad(part, (0, 0, 0, missing)) for part in (q, known.k, known.v))
        y = chunked_lsh_attention(q, k, v, mates)
        return y[:, :, known.k.shape[2] - new : known.k.shape[2]]

    def _kept(self, known: ReformerState) -> ReformerState:
        """Drop the tokens that no later one can meet: keep the last ones of each bucket, in order."""
        most, tokens = self.rounds * self._padding * self.chunk_length, known.k.shape[2]
        if tokens <= most:
            return known
        order = known.buckets.argsort(dim=-1, stable=True)
        place = torch.empty_like(order).scatter(-1, order, torch.arange(tokens, device=order.device).expand_as(order))
        # not one_hot, which reads values and so fails under torch.func.vmap
        sizes = (known.buckets[..., None] == torch.arange(self._padding + 1, device=known.k.device)).sum(-2)
        left = sizes.cumsum(-1).gather(-1, known.buckets) - place
        met = ((left <= self.chunk_length) & (known.buckets < self._padding)).any(2)
        newest = torch.arange(tokens, device=order.device) + tokens * met
        index = newest.topk(most).indices.sort().values
        k, v = (part.gather(2, index[..., None].expand(-1, -1, -1, part.shape[3])) for part in (known.k, known.v))
        return ReformerState(k, v, known.buckets.gather(3, index[:, :, None].expand(-1, -1, self.rounds, -1)))


def _unit(q: Queries) -> Float[Tensor, "b h i d"]:
    """Normalise to length 1, with the epsilon of the authors' code."""
    return q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * q.shape[-1] ** -0.5


def _joined(known: ReformerState, new: ReformerState) -> ReformerState:
    k, v = torch.cat([known.k, new.k], 2), torch.cat([known.v, new.v], 2)
    return ReformerState(k, v, torch.cat([known.buckets, new.buckets], 3))
