"""How tokens exchange information inside a layer."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ordinate import catalog
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.ops.relative import Projection
from ordinate.room import Longest, Room
from ordinate.scheme import PLACES, Placed, Scheme
from ordinate.shapes import Keys, Tokens, Values
from ordinate.shard import Shard

BEFORE_THE_LAYERS = frozenset({"place", "embed"})
"""Hooks that the model uses itself, whatever its mixers do."""
HOOKS = frozenset({*PLACES, "borrow"})
"""All that a scheme may use in a layer: its own hooks, and the layer's projections."""
Memory = TypeVar("Memory", bound="State")
"""The kind of state that a mixer keeps."""


@dataclass(frozen=True, eq=False)
class State:
    """What one layer remembers of the tokens it has read: tensors, each with the batch as its first axis."""

    @property
    def rows(self) -> int:
        """How many rows of a batch it remembers."""
        return getattr(self, fields(self)[0].name).shape[0]

    def take(self: Memory, rows: Int[Tensor, "rows"]) -> Memory:
        """The memory of these rows of the batch, in this order."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, eq=False)
class KeyValues(State):
    """What attention remembers.

    Args:
        k: the encoded keys of the tokens.
        v: their values.
        room: where they grow; None: before something was added.
    """

    k: Keys
    v: Values
    room: Room | None = None

    @property
    def longest(self) -> Longest | None:
        """What tells the length of the longest key of each head, as `attend_cached` takes it; None: nothing does."""
        return None if self.room is None else self.room.longest

    def take(self, rows: Int[Tensor, "rows"]) -> "KeyValues":
        """The memory of these rows of the batch, in this order."""
        return KeyValues(self.k[rows], self.v[rows])

    def extend(self, k: Keys, v: Values) -> "KeyValues":
        """This memory followed by newer keys and values; this one stays as it is."""
        need(
            self.k.shape[:2] == k.shape[:2] and self.k.shape[3] == k.shape[3],
            "what is remembered and what is new need one batch and the same heads",
            lambda: f"got {tuple(self.k.shape)} and {tuple(k.shape)}",
            "use the cache with the batch and the model that filled it",
        )
        alike = self.k.dtype == k.dtype and self.v.dtype == v.dtype
        # a graph of gradients keeps what it has seen
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not alike:
            return KeyValues(torch.cat([self.k, k], 2), torch.cat([self.v, v], 2))
        held, stop = self.k.shape[2], self.k.shape[2] + k.shape[2]
        room = self.room
        if room is None or not room.takes(k, held):
            room = Room.around(self.k, self.v, k.shape[2])
        room.k[:, :, held:stop], room.v[:, :, held:stop], room.filled = k, v, stop
        return KeyValues(room.k[:, :, :stop], room.v[:, :, :stop], room)


@runtime_checkable
class Borrower(Protocol):
    """A scheme that reads vectors of its own by a layer's projections of contents.

    It names `borrow` among its hooks, so that only mixers which lend them take it.
    """

    def borrow(self, query: Projection, key: Projection) -> Scheme:
        """The same inside one layer."""


class Mixer(nn.Module, Generic[Memory]):
    """A way for tokens to exchange information.

    Must: `honours`, `equivariant` and `forward`; take what it needs by keyword (`width`, `heads`, `kv_heads`,
        `head_width`, `layers`, `layer`, `max_length`, `scale`, `dropout`), from which a model binds its own sizes by
        name; keep numbers that the model shall not draw anew outside of `nn.Linear`.
    May: set the other declared properties.
    """

    honours: ClassVar[frozenset[str]]
    """The hooks of a scheme that it uses; a scheme with others would silently say nothing, so it is refused."""
    equivariant: ClassVar[bool]
    """Whether permuted tokens give permuted results where nothing hides the future: then it needs a scheme to tell
    order. The contract suite measures it, both ways."""
    causal: ClassVar[bool] = True
    """Whether it has a form in which no token learns of those after it."""
    bidirectional: ClassVar[bool] = True
    """Whether it has a form in which all tokens learn of each other."""
    crosses: ClassVar[bool] = False
    """Whether it can look at another sequence: its queries from one, keys and values from the other."""
    shardable: ClassVar[bool] = False
    """Whether it can read a sequence that several processes share (`Shard`)."""
    streams: bool = True
    """Whether reading may stop and go on: the causal form returns what it remembers."""
    usual_scheme: ClassVar[str] = "rope"
    """The scheme that it is compared with where none is named."""
    exact_causal: bool = True
    """Whether its causal form lets nothing of later tokens through."""
    max_length: int | None = None
    """Tokens that it can serve at most; None: any number."""
    width: int
    """Columns of the model that it was made for."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check what the constructor is given against the types that it declares, and keep the width."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", catalog.checked(cls.__init__, keep=("width",)))

    @abstractmethod
    def forward(self, x: Tokens, at: Placed, state: Memory | None = None) -> tuple[Tokens, Memory | None]:
        """Mix the tokens of `x`; `at` has them as queries, and everything remembered and them as keys."""

    @classmethod
    def check_scheme(cls, scheme: Scheme) -> None:
        """Raise unless this mixer honours every hook that the scheme uses."""
        unused = sorted(set(scheme.hooks) - cls.honours - BEFORE_THE_LAYERS)
        need(
            not unused,
            f"{cls.__name__} must use every hook of the scheme",
            f"it ignores {', '.join(unused)} of {type(scheme).__name__}",
            f"choose a scheme that uses {', '.join(sorted(cls.honours | BEFORE_THE_LAYERS))} only, or another mixer",
        )

    @classmethod
    def check_causal(cls) -> None:
        """Raise unless it can hide later tokens from earlier ones."""
        need(
            cls.causal,
            "a model that reads from left to right hides later tokens",
            f"{cls.__name__} has no such form",
            "choose another mixer (`ordinate list mixers` says which have one)",
        )

    @classmethod
    def check_bidirectional(cls) -> None:
        """Raise unless it can let all tokens learn of each other."""
        need(
            cls.bidirectional,
            "a model that reads from both sides lets all tokens learn of each other",
            f"{cls.__name__} has no such form",
            "choose another mixer (`ordinate list mixers` says which have one)",
        )

    @classmethod
    def check_crosses(cls) -> None:
        """Raise unless it can look at another sequence."""
        need(
            cls.crosses,
            "cross-attention looks at another sequence",
            f"{cls.__name__} has no such form",
            "choose another mixer: softmax",
        )

    def check_where(self, where: Geometry) -> None:
        """Raise unless it has a form for this geometry, and serves as many tokens."""
        if where.hides_future:
            self.check_causal()
        need(
            self.bidirectional or where.hides_future,
            f"{type(self).__name__} reads from left to right",
            "got a geometry in which tokens see those after them",
            "build it with causal=True, or choose another mixer",
        )
        need(
            self.shardable or not isinstance(where, Shard),
            "a sequence that processes share is read by attention",
            f"{type(self).__name__} has no such form",
            "choose another mixer: softmax",
        )
        # the number of tokens may be open inside torch.compile: no text of it is made before it is needed
        limit, keys = self.max_length, where.shape[1]
        need(
            limit is None or keys <= limit,
            f"this {type(self).__name__} serves {limit} tokens at most (max_length)",
            lambda: f"got {keys}",
            "build it with a larger max_length, or shorten the input",
        )


def check_heads(width: int, heads: int, kv_heads: int) -> None:
    """Raise unless the heads divide the width and the key heads divide the heads."""
    sizes: Sequence[tuple[str, int]] = (("width", width), ("heads", heads), ("kv_heads", kv_heads))
    for name, value in sizes:
        need(value > 0, f"{name} must be above zero", f"got {value}", f"give a positive {name}")
    need(
        width % heads == 0,
        "heads must divide width",
        f"got width {width}, heads {heads}",
        "choose heads that do",
    )
    need(
        heads % kv_heads == 0,
        "kv_heads must divide heads",
        f"got heads {heads}, kv_heads {kv_heads}",
        "choose kv_heads that do",
    )
