"""Attention among tokens that a hash holds to be alike."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ordinate.checks import need, need_positive
from ordinate.mixer import State, check_heads
from ordinate.ops.hashing import Mates, buckets_of, compare_all, compare_mates
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values

# buckets beyond which two hashes side by side take the place of one
FEW = 128


@dataclass(frozen=True, eq=False)
class Hashed(State):
    """What is remembered of the tokens that may be met again.

    Args:
        k: their encoded keys.
        v: their values.
        buckets: where each round of hashing put them.
    """

    k: Keys
    v: Values
    buckets: Int[Tensor, "b h rounds n"]


class Reformer(SequenceMixer[Hashed]):
    """Each token looks only at tokens whose vectors point the same way, which a random hash finds without comparing.

        q_j = x_j W,   k_j = q_j / |q_j|,   bucket(q) = argmax [q R; -q R],  R random, anew in each round
        y_i = sum_j softmax_j(q_i . k_j) v_j W_O  over all j that i meets in some round; itself only if nobody else

    In `strict` mode a token meets the `chunk_length` tokens before it in its bucket (and after it, where nothing
    hides the future). In `chunk` mode, the paper's, tokens are sorted by bucket and cut into chunks; a token meets
    those of its chunk and of the chunk before. There, where chunks end depends on later tokens, so the causal form
    lets something through, and does not read on after a pause.

    Args:
        width: columns of the model.
        heads: heads; each has width / heads channels.
        max_length: length of the texts that the number of buckets is made for; longer ones are served [tokens].
        chunk_length: how far a token looks within its bucket, and the length of a chunk [tokens].
        rounds: how often is hashed; more rounds miss fewer pairs, and cost as much again each.
        buckets: how many; 1, or even. None: two for each `chunk_length` of `max_length`.
        mode: `strict` or `chunk`.
        divided: whether products are divided by sqrt(d) too (lucidrains) or not (trax, transformers).

    Raises:
        ValueError: sizes that do not fit, an odd number of buckets.
    Source: Kitaev et al. 2020, section 2, https://arxiv.org/abs/2001.04451.
    Departs: `strict` is ours. Chunks look back within their own round, never into the one before. A pair that meets
        in several rounds counts once, in the first, which gives what the paper's division by the number of rounds
        gives. The hash sees vectors before a scheme marks them. No attention weights are dropped in training. Where a
        text is short, all products are made, and those of tokens that do not meet are left out.
    """

    honours = frozenset({"place", "embed", "encode_query", "encode_key"})
    # the order of equal buckets decides who meets whom: only a text shorter than a chunk has none
    equivariant = False

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
        need(fits, "buckets come in opposite pairs", f"got {buckets}", "give an even number, or 1")
        self.heads, self.chunk_length, self.rounds = heads, chunk_length, rounds
        self.exact_causal = self.streams = self.strict = mode == "strict"
        half = 2 * max(1, round(buckets**0.5 / 2))
        self.factors = (buckets,) if buckets <= FEW else (half, 2 * math.ceil(buckets / half / 2))
        self.scale = (width // heads) ** -0.5 if divided else 1.0
        self.project = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        columns = sum(factor // 2 for factor in self.factors)
        self.directions: Int[Tensor, "h d rounds columns"]
        # whole numbers: no change of types rounds them
        directions = torch.empty(heads, width // heads, rounds, columns, dtype=torch.int32)
        self.register_buffer("directions", directions)
        self.rehash()

    @torch.no_grad()
    def rehash(self, generator: torch.Generator | None = None) -> None:
        """Draw the random directions anew; what was remembered before no longer fits."""
        drawn = torch.randn(self.directions.shape, generator=generator, device=self.directions.device)
        self.directions.copy_((1024 * drawn).round())

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Hashed | None
    ) -> tuple[Tokens, Hashed | None]:
        """Hash the tokens, and let those that meet look at each other."""
        wide = self.project(x).to(torch.promote_types(x.dtype, torch.float32))
        with torch.autocast(x.device.type, enabled=False):
            q, v = rearrange(wide, "b n (two h d) -> two b h n d", two=2, h=self.heads)
            buckets = self._buckets(q, real)
            q, k = at.encode(q, _unit(q))
            state = Hashed(k, v, buckets) if state is None else _joined(state, Hashed(k, v, buckets))
            y = self._compare(q * self.scale, state, at.where.hides_future)
        y = self.out(rearrange(y, "b h n d -> b n (h d)").to(x.dtype))
        return y, self._kept(state) if self.strict and at.where.hides_future else None

    @property
    def _few(self) -> int:
        # as many keys as each query has in the chunks of all rounds: no more work to take all of them
        return 2 * self.chunk_length * self.rounds

    @property
    def _padding(self) -> int:
        return math.prod(self.factors)

    def _buckets(self, q: Queries, real: Bool[Tensor, "b n"] | None) -> Int[Tensor, "b h rounds n"]:
        buckets = buckets_of(q, self.directions, self.factors)
        return buckets if real is None else torch.where(real[:, None, None], buckets, self._padding)

    def _compare(self, q: Queries, known: Hashed, hides_future: bool) -> Outputs:
        new, missing = q.shape[2], -known.k.shape[2] % self.chunk_length
        few = new <= self._few
        buckets = known.buckets if few else pad(known.buckets, (0, missing), value=self._padding)
        mates = Mates.of(buckets, self._padding, self.chunk_length, self.strict, hides_future)
        if few:
            return compare_all(q, known.k, known.v, mates)
        q = pad(q, (0, 0, known.k.shape[2] - new, 0))
        q, k, v = (pad(part, (0, 0, 0, missing)) for part in (q, known.k, known.v))
        y = compare_mates(q, k, v, mates)
        return y[:, :, known.k.shape[2] - new : known.k.shape[2]]

    def _kept(self, known: Hashed) -> Hashed:
        """Those that a later token may meet, which are the last of each bucket, in their order."""
        most, tokens = self.rounds * self._padding * self.chunk_length, known.k.shape[2]
        if tokens <= most:
            return known
        order = known.buckets.argsort(dim=-1, stable=True)
        place = torch.empty_like(order).scatter(-1, order, torch.arange(tokens, device=order.device).expand_as(order))
        sizes = nn.functional.one_hot(known.buckets, self._padding + 1).sum(-2)
        left = sizes.cumsum(-1).gather(-1, known.buckets) - place
        met = ((left <= self.chunk_length) & (known.buckets < self._padding)).any(2)
        newest = torch.arange(tokens, device=order.device) + tokens * met
        index = newest.topk(most).indices.sort().values
        k, v = (part.gather(2, index[..., None].expand(-1, -1, -1, part.shape[3])) for part in (known.k, known.v))
        return Hashed(k, v, known.buckets.gather(3, index[:, :, None].expand(-1, -1, self.rounds, -1)))


def _unit(q: Queries) -> Float[Tensor, "b h i d"]:
    """The same directions, all of length 1, as the authors' code makes them."""
    return q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * q.shape[-1] ** -0.5


def _joined(known: Hashed, new: Hashed) -> Hashed:
    k, v = torch.cat([known.k, new.k], 2), torch.cat([known.v, new.v], 2)
    return Hashed(k, v, torch.cat([known.buckets, new.buckets], 3))
