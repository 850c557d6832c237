"""How a model knows where its tokens stand."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate import catalog
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.ops.blocks import along
from ordinate.ops.relative import Vectors
from ordinate.shapes import (
    Bias,
    Keys,
    Marked,
    MarkedKeys,
    MarkedQueries,
    Outputs,
    Positions,
    Queries,
    Tokens,
    Weights,
)
from ordinate.tensors import need_below, need_served, need_size, need_tokens, need_vectors

Encoder = Callable[[Tensor], Tensor]
Made = TypeVar("Made")
PLACES = {
    "place": "positions",
    "embed": "tokens",
    "encode_query": "queries",
    "encode_key": "keys",
    "score": "scores, in place of q.k",
    "bias": "scores",
    "content_bias": "scores, from content too",
    "carry": "outputs",
}


class Scheme(nn.Module):
    """One positional scheme. Every hook does nothing unless overridden.

    Position can enter a transformer at four places: on the tokens before the first layer, on queries and keys, on
    the scores, and on the output of attention. A scheme overrides the hooks of the places that it uses. `place` and
    `embed` act once, before the first layer, the others in every layer.

    Must: declare `shift_invariant`; take what it needs by keyword (`width`, `heads`, `head_width`, `max_length`),
        from which a model binds its own sizes by name; return the type it was given; keep parameters only, no float
        buffers (tables are computed from Python numbers, angles in float64).
    Should: name its source in the docstring and in `citation`; override `check_positions` where some positions
        cannot be served.
    May: set the other declared properties.
    """

    axes: tuple[int, ...] = (1,)
    """How many position axes it accepts: 1 for text, 2 for images. An instance may accept fewer."""
    whole: bool = False
    """Whether it refuses fractional positions."""
    per_layer: bool = False
    """Whether each layer needs an instance of its own; otherwise one serves all layers."""
    shift_invariant: bool
    """Whether moving all positions by a constant changes nothing. The contract suite measures it, both ways."""
    citation: str = ""
    """The BibTeX entry of the source."""
    max_length: int | None = None
    """Positions it can serve are below this; None: any."""
    claims: int = 0
    """Columns of the width that `embed` appends; the token table gets the rest."""
    width: int
    """Columns of the model that it was made for, kept for it if it asks for them."""
    heads: int
    """Query heads that it was made for, kept likewise."""
    head_width: int
    """Channels of a head that it was made for, kept likewise."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check what the constructor is given against the types that it declares, and keep the sizes among it."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", catalog.checked(cls.__init__, keep=("width", "heads", "head_width")))

    def place(self, where: Geometry) -> Geometry:
        """Move the tokens: the geometry that this scheme, and those it is summed with, see instead."""
        return where

    def embed(self, x: Tokens, pos: Positions) -> Marked:
        """Mark the token vectors, before the first layer: added, or appended as `claims` columns."""
        return x

    def encode_query(self, q: Queries, pos: Positions) -> MarkedQueries:
        """Mark the queries; each depends on its own position only."""
        return q

    def encode_key(self, k: Keys, pos: Positions) -> MarkedKeys:
        """Mark the keys, once: the result is what a decoder caches."""
        return k

    def encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """What marks queries, and what marks keys, at these positions: made once in a forward pass, for all layers.

        Override it beside the two hooks, and let it say the same, where what depends on positions alone is costly.
        """
        return partial(self.encode_query, pos=pos), partial(self.encode_key, pos=pos)

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Score in place of q.k, before the scale: for keys that each query sees marked in another way.

        Asked for any block of queries, with all keys, which come with as many heads.
        """
        return None

    def bias(self, where: Geometry) -> Bias | None:
        """Add to the scores from positions alone, for a geometry or any block of one."""
        return None

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Add to the scores from positions and the encoded queries and keys.

        Asked for any block of queries, with all keys, which come with as many heads.
        """
        return None

    def carry(self, weights: Weights, where: Geometry) -> Outputs | None:
        """Add to the output of attention, from the weights and positions, after the softmax.

        Asked for any block of queries, with all keys.
        """
        return None

    def vectors(self, where: Geometry) -> Vectors | None:
        """What `content_bias` and `carry` read, where all that they need of positions is the offset: a faster way.

        Override it beside the two, and let it say the same. Asked for one query, and keys at many offsets.
        """
        return None

    @property
    def hooks(self) -> tuple[str, ...]:
        """The names of the hooks that it uses: those it overrides, unless its options leave some of them idle."""
        return tuple(name for name in PLACES if getattr(type(self), name) is not getattr(Scheme, name))

    def at(self, where: Geometry) -> "Placed":
        """This scheme at one geometry: make one for each forward pass, all layers share it."""
        if not isinstance(where, Geometry):
            came = type(where).__name__
            raise TypeError(f"a scheme stands at a Geometry; got {came}; build one: Geometry.causal(n)")
        where = self.place(where)
        for pos in (where.q_pos, where.k_pos):
            self.check_positions(pos)
        return Placed(self, where)

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless the scheme can serve these positions."""
        name = type(self).__name__
        need_served(name, pos, self.axes, whole=self.whole)
        # reading a value would break a graph that is being compiled, and cost nothing but time elsewhere
        if not pos.numel() or torch.compiler.is_compiling():
            return
        finite = not pos.is_floating_point() or bool(pos.isfinite().all())
        need(finite, f"{name} takes finite positions", "got NaN or infinity among them", "give each token a place")
        if self.max_length is not None:
            self.check_length(pos)

    def check_length(self, pos: Positions) -> None:
        """Raise a ValueError unless all positions are below `max_length`; for schemes that have one."""
        need_below(type(self).__name__, pos, self.max_length or 0)


class Placed:
    """One scheme at one geometry: what mixers and `attend` ask for the positions of a forward pass.

    What depends on positions alone is evaluated once and shared by all layers. It lives as long as one forward pass:
    a learned bias must not outlive the step that trains it, which is why the geometry itself, which may be kept, does
    not remember it.

    Args:
        scheme: says how positions enter.
        where: says what the positions are.
    """

    def __init__(self, scheme: Scheme, where: Geometry) -> None:
        self.scheme = scheme
        self.where = where
        # functools.cached_property takes a lock, which torch.compile cannot trace
        self._made: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """What is made of the positions alone: by the first layer that asks for it, for all of them."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def embed(self, x: Tokens) -> Marked:
        """Mark the token vectors."""
        need_vectors("x", x, "batch, tokens, width")
        need_tokens("x", x, x.shape[1], self.where.q_pos)
        need_size("x", self.scheme, "width", x.shape[2] + self.scheme.claims)
        return self.scheme.embed(x, self.where.q_pos)

    def encode(self, q: Queries, k: Keys) -> tuple[MarkedQueries, MarkedKeys]:
        """Mark the queries and the keys of the same new tokens."""
        for name, x in (("q", q), ("k", k)):
            need_vectors(name, x, "batch, heads, tokens, head width")
            need_tokens(name, x, x.shape[2], self.where.q_pos)
            need_size(name, self.scheme, "head_width", x.shape[3])
        need_size("q", self.scheme, "heads", q.shape[1])
        mark_query, mark_key = self.once("encoders", lambda: self.scheme.encoders(self.where.q_pos))
        return mark_query(q), mark_key(k)

    @property
    def bias(self) -> Bias | None:
        """What positions alone add to the scores, whole."""
        return self.once("bias", lambda: self.scheme.bias(self.where))

    @property
    def mask(self) -> Bool[Tensor, "#b #h i j"] | Bias | None:
        """Bias and visibility in one: added to the scores (a bias, -inf where invisible) or True where visible."""
        return self.once("mask", self._mask)

    @property
    def table(self) -> Float[Tensor, "#h offsets"] | None:
        """What positions alone add to the scores, by how many places a key lies ahead in memory.

        Entry x is for keys x - queries + 1 places after the query. None where the distance in memory does not say it
        all, or nothing is added.
        """
        return self.once("table", self._table)

    def _table(self) -> Float[Tensor, "#h offsets"] | None:
        where, (queries, keys) = self.where, self.where.shape
        if not (where.ordered and self.scheme.shift_invariant) or "bias" not in self.scheme.hooks:
            return None
        bias = self.scheme.bias(along(where, 0, queries + keys - 1))
        return None if bias is None else bias[0, :, 0]

    def _mask(self) -> Bool[Tensor, "#b #h i j"] | Bias | None:
        if self.where.sees_all:
            return self.bias
        seen = self.where.visible[:, None]
        return seen if self.bias is None else self.bias.masked_fill(~seen, float("-inf"))

    def block(self, queries: slice, keys: slice = slice(None)) -> "Placed":
        """The same for some of the queries and keys, evaluated anew."""
        return Placed(self.scheme, self.where.block(queries, keys))
