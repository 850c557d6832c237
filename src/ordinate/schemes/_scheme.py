"""Position encoding schemes: the base class and a scheme bound to the positions of a forward pass."""

import copy
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.checkpointed import is_checkpointed, stored
from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.parameter_snapshot import ParameterSnapshot
from ordinate.core.shapes import (
    Bias,
    EmbeddedTokens,
    EncodedKeys,
    EncodedQueries,
    Keys,
    Outputs,
    Positions,
    Queries,
    Tokens,
    Weights,
)
from ordinate.core.tensors import (
    has_values,
    need_bounded_positions,
    need_positions_below,
    need_scores,
    need_size,
    need_supported_positions,
    need_tensor,
    need_tokens,
    need_untraced,
    need_vectors,
)
from ordinate.ops.blocks import offset_geometry
from ordinate.ops.rotate import Rotation
from ordinate.schemes._display import scheme_html
from ordinate.schemes._encoded import Encoded as Encoded
from ordinate.schemes._encoded import need_memory
from ordinate.schemes._fast_forms import HOOK_TARGETS as HOOK_TARGETS
from ordinate.schemes._fast_forms import Encoder as Encoder
from ordinate.schemes._fast_forms import FastForms, depends_on_offsets, encoders_of, overridden_hooks, with_hooks

Result = TypeVar("Result")


class Scheme(FastForms):
    """Base class of position encoding schemes. Every hook is the identity, or adds nothing, unless overridden.

    Position can enter a transformer at four places: on the tokens before the first layer, on queries and keys, on the
    scores, and on the output of attention. A scheme overrides the hooks of the places that it uses. `remap_positions`
    and `embed` act once, before the first layer, the others in every layer.

    Must: declare `shift_invariant`; take sizes by keyword (`width`, `heads`, `head_width`, `max_length`), which a
        model binds by name; return the dtype of the input; hold parameters only, no floating-point buffers (tables
        are computed from Python numbers, angles in float64).
    Should: name its source in the docstring and in `citation`; override `check_positions` if it does not support all
        positions.
    May: set the other declared properties.
    """

    axes: tuple[int, ...] = (1,)
    """Supported numbers of position axes: 1 for text, 2 for images. An instance may support fewer."""
    integer_positions: bool = False
    """Whether positions must be integers."""
    per_layer: bool = False
    """Whether each layer needs its own instance; otherwise all layers share one."""
    citation: str = ""
    """The BibTeX entry of the source."""
    max_length: int | None = None
    """Supported positions are below this; None: unlimited."""
    appended_width: int = 0
    """Number of columns that `embed` appends to the token embedding, which is narrower by as many."""
    width: int
    """Model width (d_model); set from the constructor argument of this name, if there is one."""
    heads: int
    """Number of query heads; set likewise."""
    head_width: int
    """Channels per head; set likewise."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor: validate its arguments against their annotations and store the sizes among them."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", catalog.checked(cls.__init__, keep=("width", "heads", "head_width")))
        cls._overridden = overridden_hooks(cls, Scheme)
        if cls.hooks is not Scheme.hooks and cls._overridden["hooks"]:
            cls.hooks = with_hooks(cls.hooks, cls._overridden["hooks"])

    def extra_repr(self) -> str:
        """Return the options, for repr."""
        return catalog.describe_options(self)

    def _repr_html_(self) -> str:
        return scheme_html(self)

    def forward(self, x: Queries, pos: Tensor | None = None) -> EncodedQueries:
        """Encode position into queries, or into keys, by a scheme that treats them alike: RoPE's rotation alone.

        For attention of your own. `attend` encodes by itself: the result must not be given to it. To compute the
        cosines once for several layers, keep a placed scheme: `scheme.at(where).encode(q, k).pair`.

        Args:
            x: queries or keys.
            pos: positions (tokens), (batch, tokens) or (batch, tokens, axes); None: 0, 1, 2 ...

        Raises:
            ValueError: a scheme that enters elsewhere, or encodes queries and keys differently.
        """
        need_vectors("x", x, "batch, heads, tokens, head width")
        places = torch.arange(x.shape[2], device=x.device) if pos is None else pos
        need_tensor("pos", places)
        places = places[None] if places.ndim == 1 else places
        return self.at(Geometry.from_positions(places[..., None] if places.ndim == 2 else places)).encode_alike(x)

    def remap_positions(self, where: Geometry) -> Geometry:
        """Remap positions: return the geometry that this scheme, and those it is summed with, use instead."""
        return where

    def embed(self, x: Tokens, pos: Positions) -> EmbeddedTokens:
        """Mark the token vectors, before the first layer: added, or appended as `appended_width` columns."""
        return x

    def encode_query(self, q: Queries, pos: Positions) -> EncodedQueries:
        """Encode position into the queries; each query depends on its own position only."""
        return q

    def encode_key(self, k: Keys, pos: Positions) -> EncodedKeys:
        """Encode position into the keys; each key depends on its own position only, so the result can be cached."""
        return k

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Return functions that encode queries and keys at these positions, built once per forward pass.

        Override it together with `encode_query` and `encode_key`, with equal results, if the part that depends on
        positions alone (such as cosines and sines) is expensive: all layers then share it.
        """
        return partial(self.encode_query, pos=pos), partial(self.encode_key, pos=pos)

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Return unscaled scores that replace q.k, if the encoding of a key depends on the query.

        Called for any block of queries with all keys; keys are repeated to the number of query heads.
        """
        return None

    def bias(self, where: Geometry) -> Bias | None:
        """Return a bias for the scores that depends on positions alone; called for a geometry or any block of one."""
        return None

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Return a bias for the scores that depends on positions and on the encoded queries and keys.

        Called for any block of queries with all keys; keys are repeated to the number of query heads.
        """
        return None

    def value_bias(self, weights: Weights, where: Geometry) -> Outputs | None:
        """Return a term of the attention output, such as the relative values of Shaw et al. (2018), sum_j w_ij r_ij.

        Called after the softmax, for any block of queries with all keys.
        """
        return None

    @property
    def hooks(self) -> tuple[str, ...]:
        """Names of the hooks in use: those overridden; an instance may leave some out that its options disable."""
        return tuple(name for name in HOOK_TARGETS if getattr(type(self), name) is not getattr(Scheme, name))

    def at(self, where: Geometry) -> "Placed":
        """Bind the scheme to a geometry. Do so once per forward pass; all layers share the result."""
        need_untraced()
        if not isinstance(where, Geometry):
            came = type(where).__name__
            raise TypeError(f"a scheme is bound to a Geometry; got {came}; build one: Geometry.causal(n)")
        need(
            torch.compiler.is_compiling() or where.start >= 0,
            "the first query must not come before the first key",
            lambda: f"got start={where.start}",
            "count start from the first key",
        )
        self._need_declared()
        where = self.remap_positions(where)
        self.check_positions(where.q_pos)
        if where.k_pos is not where.q_pos:
            self.check_positions(where.k_pos)
        return Placed(self, where)

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless the scheme supports these positions.

        What depends on the numbers is checked at once on a CPU, and by the device itself on a GPU (`need_true`).
        """
        need_supported_positions(name := type(self).__name__, pos, self.axes, integer_only=self.integer_positions)
        # reading a tensor value would cause a graph break under torch.compile; in eager mode it only costs time
        if not pos.numel() or torch.compiler.is_compiling() or not has_values(pos):
            return
        need_bounded_positions(name, pos)
        if self.max_length is not None:
            self.check_length(pos)

    def check_length(self, pos: Positions) -> None:
        """Raise a ValueError unless all positions are below `max_length`; called only if it is set."""
        need_positions_below(type(self).__name__, pos, self.max_length or 0)


class Placed:
    """A scheme bound to a geometry: mixers and `attend` use it for one forward pass.

    Results that depend on positions alone are computed once and shared by all layers. They are cached here and not in
    the geometry, which may outlive the forward pass: a learned bias must be recomputed after each optimiser step.

    Args:
        scheme: the position encoding scheme.
        where: the positions and visibility of queries and keys.
    """

    def __init__(self, scheme: Scheme, where: Geometry) -> None:
        self.scheme = scheme
        self.where = where
        # functools.cached_property takes a lock, which torch.compile cannot trace
        self._made: dict[Hashable, Any] = {}
        self._embedded = False
        self._last_embedded: Callable[[], Tensor | None] = _no_tokens
        self._snapshot: ParameterSnapshot | None = None

    def __repr__(self) -> str:
        """Name the scheme and the numbers of queries and keys."""
        queries, keys = self.where.shape
        return f"Placed({self.scheme!r}, queries={queries}, keys={keys})"

    def _repr_html_(self) -> str:
        return scheme_html(self.scheme) + self.where._repr_html_()

    def __getstate__(self) -> dict[str, Any]:
        # a copy has parameters of its own: what was computed from these is left out
        return {**vars(self), "_made": {}, "_snapshot": None, "_last_embedded": _no_tokens}

    def with_scheme(self, scheme: Scheme) -> "Placed":
        """Return a copy with another scheme: a copy of this one whose parameters were replaced."""
        other = copy.copy(self)
        other.scheme = scheme
        return other

    def cached(self, name: Hashable, make: Callable[[], Result]) -> Result:
        """Compute a result that depends on positions alone at the first call, and return the cached one later.

        Raises:
            ValueError: a parameter, buffer or tensor attribute of the scheme has changed since the first call, by an
                optimiser step for example.
        """
        # made without gradients, as in a validation pass, it does not serve for training
        mode = (False, False) if torch.compiler.is_compiling() else (torch.is_grad_enabled(), self._learns())
        key = (name, *mode)
        if key not in self._made:
            self._made[key] = stored(make)
        return self._made[key]

    def _learns(self) -> bool:
        self._snapshot = self._snapshot or ParameterSnapshot(self.scheme)
        came = "got one whose parameters have changed since its first use, so that what it holds is stale"
        must, remedy = "a placed scheme serves one forward pass", "place it anew: scheme.at(where)"
        # computed again, sharded parameters (FSDP) are other tensors with the same numbers
        need(is_checkpointed() or self._snapshot.is_current(), must, came, remedy)
        return self._snapshot.learns

    def embed(self, x: Tokens) -> EmbeddedTokens:
        """Apply `Scheme.embed` to the token embeddings.

        Raises:
            ValueError: the tokens have another width, or are those that the last call returned.
        """
        need_vectors("x", x, "batch, tokens, width")
        need_tokens("x", x, x.shape[1], self.where.q_pos)
        need_size("x", self.scheme, "width", x.shape[2] + self.scheme.appended_width)
        must, came = "position embeddings are given to tokens once", "got the tokens that at.embed returned"
        need(self._last_embedded() is not x, must, came, "call at.embed once, before the first layer")
        self._embedded, out = True, self.scheme.embed(x, self.where.q_pos)
        if "embed" in self.scheme.hooks and not torch.compiler.is_compiling():
            self._last_embedded = weakref.ref(out)
        return out

    def need_embedded(self) -> None:
        """Raise unless the scheme's position embeddings, if it has any, have been given to the tokens by `embed`.

        Raises:
            ValueError: position enters at the tokens, and `embed` has not been called.
        """
        must = f"{type(self.scheme).__name__} enters at the token embeddings, before q, k and v are projected"
        remedy = "embed the tokens first, x = at.embed(x), with the same placed scheme"
        need(self._embedded or "embed" not in self.scheme.hooks, must, "got no call of at.embed", remedy)

    def encode(self, q: Queries, k: Keys, *, into: Keys | None = None) -> Encoded:
        """Encode position into the queries and the keys of the same new tokens, before the keys enter a cache.

        Args:
            q: queries.
            k: keys.
            into: memory for the encoded keys, in a KV cache for example, without gradients: `k` of the result is then
                this tensor. A rotation is computed into it; other encodings are copied. None: memory of their own.

        Raises:
            ValueError: `into` is unlike encoded keys, shares memory with them or itself, or gradients are recorded.
        """
        for name, x in (("q", q), ("k", k)):
            self._need_encodable(name, x, self.where.q_pos)
        need_size("q", self.scheme, "heads", q.shape[1])
        encode_query, encode_key = self._encoders
        if isinstance(encode_query, Rotation) and encode_query is encode_key:
            need_memory(into, k)
            return Encoded(*encode_query.both(q, k, into), self.scheme)
        encoded = encode_key(k)
        need_memory(into, encoded)
        return Encoded(encode_query(q), encoded if into is None else into.copy_(encoded), self.scheme)

    def encode_all(self, q: Queries, k: Keys) -> Encoded:
        """Encode position into the queries and into all keys of the geometry, at the key positions."""
        if self.where.k_pos is self.where.q_pos:
            return self.encode(q, k)
        self._need_encodable("q", q, self.where.q_pos)
        self._need_encodable("k", k, self.where.k_pos)
        need_size("q", self.scheme, "heads", q.shape[1])
        encode_query, _ = self._encoders
        _, encode_key = self.cached("key encoders", lambda: encoders_of(self.scheme, self.where.k_pos))
        return Encoded(encode_query(q), encode_key(k), self.scheme)

    def encode_alike(self, x: Queries) -> EncodedQueries:
        """Encode position into queries or keys by a scheme that treats them alike, see `Scheme.forward`."""
        of_q, of_k = self._encoders
        need(
            of_q is of_k and self.scheme.hooks == ("encode_query", "encode_key"),
            "only a scheme that encodes queries and keys alike, and does nothing else, can be called",
            f"got {type(self.scheme).__name__}, with the hooks {', '.join(self.scheme.hooks) or 'of none'}",
            "place it, at = scheme.at(where), and use attend, at.encode(q, k).pair, at.bias or at.embed",
        )
        self._need_encodable("x", x, self.where.q_pos)
        return of_q(x)

    @property
    def _encoders(self) -> tuple[Encoder, Encoder]:
        return self.cached("encoders", lambda: encoders_of(self.scheme, self.where.q_pos))

    def _need_encodable(self, name: str, x: Queries | Keys, pos: Positions) -> None:
        need_vectors(name, x, "batch, heads, tokens, head width")
        need_tokens(name, x, x.shape[2], pos)
        need_size(name, self.scheme, "head_width", x.shape[3])

    @property
    def bias(self) -> Bias | None:
        """The position-only bias of the scores, for all queries and keys."""
        return self.cached("bias", lambda: self._bias_at(self.where))

    def _bias_at(self, where: Geometry) -> Bias | None:
        bias = self.scheme.bias(where)
        need_scores("bias", self.scheme, bias, where.shape)
        return bias if bias is None or bias.shape[2:] == where.shape else bias.expand(-1, -1, *where.shape)

    @property
    def mask(self) -> Bool[Tensor, "#b #h i j"] | Bias | None:
        """Bias and visibility combined: a float bias with -inf where masked, or a boolean mask (True: visible)."""
        return self.cached("mask", self._mask)

    @property
    def offset_table(self) -> Float[Tensor, "#h offsets"] | None:
        """The position-only bias as a table over memory offsets, instead of a matrix of queries and keys.

        Entry x is the bias of keys x - queries + 1 places after the query. None if the bias is not a function of the
        memory offset alone, or if there is none.
        """
        return self.cached("offset_table", self._offset_table)

    def _offset_table(self) -> Float[Tensor, "#h offsets"] | None:
        where, (queries, keys) = self.where, self.where.shape
        by_offset = where.consecutive and where.q_pos.shape[-1] == 1 and depends_on_offsets(self.scheme)
        used = by_offset and "bias" in self.scheme.hooks
        bias = self._bias_at(offset_geometry(where, 0, queries + keys - 1)) if used else None
        return None if bias is None else bias[0, :, 0]

    def _mask(self) -> Bool[Tensor, "#b #h i j"] | Bias | None:
        if self.where.is_unmasked:
            return self.bias
        seen = self.where.visible[:, None]
        return seen if self.bias is None else self.bias.masked_fill(~seen, float("-inf"))

    def block(self, queries: slice, keys: slice | None = None) -> "Placed":
        """Bind the scheme to a block of the queries and keys; nothing cached is shared with it."""
        block = Placed(self.scheme, self.where.block(queries, keys))
        block._embedded = self._embedded
        return block


def _no_tokens() -> None:
    """Stand for a reference to the tokens that `Placed.embed` returned, before its first call."""
