"""The token mixer contract: how the tokens of a layer exchange information (attention is one way)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ordinate.attention.kv_buffer import KVBuffer, MaxKeyNorm
from ordinate.core import catalog
from ordinate.core.checks import need, need_positive_counts
from ordinate.core.geometry import Geometry
from ordinate.core.initial_values import Rebuilt
from ordinate.core.sequence_shard import SequenceShard
from ordinate.core.shapes import Keys, Tokens, Values
from ordinate.mixers._causal_gradients import Inputs, Mix, State, with_causal_gradients
from ordinate.ops.relative import Projection
from ordinate.schemes._scheme import HOOK_TARGETS, Placed, Scheme

MODEL_LEVEL_HOOKS = frozenset({"remap_positions", "embed"})
"""Scheme hooks that the model applies before the first layer, so every mixer supports them."""
ALL_HOOKS = frozenset({*HOOK_TARGETS, "bind_projections"})
"""All scheme hooks that a mixer can support, and `bind_projections`: access to the projections of the layer."""
StateType = TypeVar("StateType", bound="MixerState")
"""Type of the recurrent state or KV cache of a mixer."""


@dataclass(frozen=True, eq=False)
class MixerState:
    """Decoding state of one layer (KV cache or recurrent state): tensors whose first axis is the batch."""

    @property
    def batch_size(self) -> int:
        """Batch size."""
        return getattr(self, fields(self)[0].name).shape[0]

    def select_rows(self: StateType, rows: Int[Tensor, "rows"]) -> StateType:
        """Select rows of the batch, in the given order (for beam search, for example)."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def fill_rows(self: StateType, rows: Bool[Tensor, "b"], value: float) -> StateType:
        """Fill the floating-point numbers of some rows with this value."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        made = {
            name: x.masked_fill(rows.view(-1, *(1,) * (x.ndim - 1)), value)
            for name, x in own.items()
            if isinstance(x, Tensor) and x.is_floating_point()
        }
        return replace(self, **made)


@dataclass(frozen=True, eq=False)
class KVCache(MixerState):
    """KV cache of one attention layer.

    Args:
        k: keys of the past tokens, with positions already encoded.
        v: values of the past tokens.
        buffer: preallocated buffer of which `k` and `v` are views; None: not allocated yet.
    """

    k: Keys
    v: Values
    buffer: KVBuffer | None = None

    @property
    def max_key_norm(self) -> MaxKeyNorm | None:
        """Largest key norm of each head, for `attend_cached`; None: not tracked."""
        return None if self.buffer is None else self.buffer.max_key_norm

    def select_rows(self, rows: Int[Tensor, "rows"]) -> "KVCache":
        """Select rows of the batch; the result is not a view of the buffer."""
        return KVCache(self.k[rows], self.v[rows])

    def reserve(self, k: Keys) -> Keys | None:
        """Return memory that new keys may be encoded into, so that `append` need not copy them; None: there is none.

        Args:
            k: the new keys, before their positions are encoded.
        """
        if self.buffer is None or self.k.shape[:2] != k.shape[:2] or not self._grows_in_place(k):
            return None
        # a scheme may add channels to keys
        return self.buffer.reserve(k, self.k.shape[2]) if self.k.shape[3] == k.shape[3] else None

    def append(self, k: Keys, v: Values) -> "KVCache":
        """Return a cache with newer keys and values appended; this one stays valid.

        Without gradients the new entries are written into a buffer that has room to spare, so that a decoding step
        copies nothing. If another continuation of this cache has written there first, the entries are copied into a
        buffer of their own.
        """
        need(
            self.k.shape[:2] == k.shape[:2] and self.k.shape[3] == k.shape[3],
            "cached and new keys need the same batch size, heads and head width",
            lambda: f"got {tuple(self.k.shape)} and {tuple(k.shape)}",
            "use the cache with the batch and the model that filled it",
        )
        if not (self._grows_in_place(k) and self.v.dtype == v.dtype):
            return KVCache(torch.cat([self.k, k], 2), torch.cat([self.v, v], 2))
        held, stop = self.k.shape[2], self.k.shape[2] + k.shape[2]
        room = self.buffer
        if room is None or not room.can_append(k, held):
            room = KVBuffer.allocate(self.k, self.v, k.shape[2])
        room.write(k, v, held)
        return KVCache(room.k[:, :, :stop], room.v[:, :, :stop], room)

    def _grows_in_place(self, k: Keys) -> bool:
        # autograd saves views of k and v: writing into their buffer afterwards would corrupt the backward pass
        return self.k.dtype == k.dtype and not (torch.is_grad_enabled() or torch.compiler.is_compiling())


@runtime_checkable
class UsesProjections(Protocol):
    """A scheme that applies the query and key projections of each layer to its own vectors (DeBERTa).

    It lists `bind_projections` among its hooks, so that only mixers with such projections accept it.
    """

    def bind_projections(self, query: Projection, key: Projection) -> Scheme:
        """Return this scheme bound to the projections of one layer."""


class Mixer(Rebuilt, Generic[StateType]):
    """Base class of token mixers: attention, linear attention, state space models, RNNs, MLP-Mixer.

    Must: define `supported_hooks`, `permutation_equivariant` and `forward`; take the sizes it needs as keyword
    arguments (`width`,
        `heads`, `kv_heads`, `head_width`, `layers`, `layer`, `max_length`, `scale`, `dropout`), which a model binds
        by name; keep parameters with an initialisation of their own outside of `nn.Linear`, whose weights the model
        initialises.
    May: set the other class attributes; override `complete_options`.
    """

    supported_hooks: ClassVar[frozenset[str]]
    """Supported scheme hooks. A scheme that uses others is rejected, since they would have no effect."""
    permutation_equivariant: ClassVar[bool]
    """Whether the bidirectional form is permutation equivariant: then only a scheme can make token order matter. The
    contract suite tests both values."""
    causal: ClassVar[bool] = True
    """Whether it has a causal form, in which no output depends on later tokens."""
    bidirectional: ClassVar[bool] = True
    """Whether it has a bidirectional form, in which every output may depend on every token."""
    supports_cross_attention: ClassVar[bool] = False
    """Whether it supports cross-attention: queries from one sequence, keys and values from another."""
    supports_context_parallel: ClassVar[bool] = False
    """Whether it supports context parallelism: a sequence split over several processes (`SequenceShard`)."""
    supports_fixed_cache: ClassVar[bool] = False
    """Whether its only state is a plain `KVCache` of all tokens, so that a decoding step can have a fixed size, as a
    CUDA graph needs."""
    supports_cache: bool = True
    """Whether the causal form supports incremental decoding: it returns a state to continue from."""
    default_scheme: ClassVar[str] = "rope"
    """Default positional scheme, used in studies and tests that name none."""
    strictly_causal: bool = True
    """Whether the causal form is strictly causal. False: some information about later tokens leaks."""
    max_length: int | None = None
    """Largest supported number of tokens; None: unlimited."""
    width: int
    """Model width that it was built for."""

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a mixer, with those that follow from others in place of None."""
        return dict(options)

    @property
    def encoded_width(self) -> int | None:
        """Channels of each query and key that a scheme encodes; None: any number."""
        return getattr(self, "head_width", None)

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor: validate argument types against their annotations, and store `width`."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", catalog.checked(cls.__init__, keep=("width",)))

    def extra_repr(self) -> str:
        """Return the options, for repr."""
        return catalog.describe_options(self)

    @abstractmethod
    def forward(self, x: Tokens, at: Placed, state: StateType | None = None) -> tuple[Tokens, StateType | None]:
        """Mix the tokens of `x`.

        Args:
            x: token vectors.
            at: the scheme at a geometry whose queries are these tokens, and whose keys are the cached tokens and
                these.
            state: the state that the call for the previous tokens returned; None: `x` starts the sequence.
        """

    def with_causal_gradients(
        self, mix: Mix[State], x: Tokens, at: Placed, state: StateType | None
    ) -> tuple[Tokens, State]:
        """Mix tokens so that gradients do not depend on tokens after the last output that has a gradient.

        Args:
            mix: mixes the tokens.
            x: the tokens.
            at: as in `forward`.
            state: as in `forward`.
        """
        held = () if state is None else (getattr(state, field.name) for field in fields(state))
        past = [one for one in held if isinstance(one, Tensor)]
        return with_causal_gradients(mix, x, Inputs(at.where, (self, at.scheme), past, self.training))

    @classmethod
    def check_scheme(cls, scheme: Scheme) -> None:
        """Raise unless this mixer supports every hook that the scheme uses."""
        missing = sorted(set(scheme.hooks) - cls.supported_hooks - MODEL_LEVEL_HOOKS)
        listed = ", ".join(map(repr, missing))
        need(
            not missing,
            f"mixer {_name(cls)!r} does not support {'hook' if len(missing) == 1 else 'hooks'} {listed}, "
            f"used by scheme {_name(type(scheme))!r}",
            f"supported hooks: {', '.join(sorted(cls.supported_hooks | MODEL_LEVEL_HOOKS))}",
            "choose a scheme that uses only these, or another mixer",
        )

    @classmethod
    def check_causal(cls) -> None:
        """Raise unless it has a causal form."""
        need(
            cls.causal,
            "a causal model needs a mixer with a causal form",
            lambda: f"mixer {_name(cls)!r} has none",
            "choose another mixer (`ordinate list mixers` shows which have one)",
        )

    @classmethod
    def check_bidirectional(cls) -> None:
        """Raise unless it has a bidirectional form."""
        need(
            cls.bidirectional,
            "a bidirectional model needs a mixer with a bidirectional form",
            lambda: f"mixer {_name(cls)!r} has none",
            "choose another mixer (`ordinate list mixers` shows which have one)",
        )

    @classmethod
    def check_cross_attention(cls) -> None:
        """Raise unless it supports cross-attention."""
        need(
            cls.supports_cross_attention,
            "cross_mixer must support cross-attention",
            lambda: f"mixer {_name(cls)!r} does not",
            "choose another mixer, such as softmax",
        )

    def check_geometry(self, where: Geometry) -> None:
        """Raise unless it supports this geometry and this number of tokens."""
        if where.is_causal:
            self.check_causal()
        else:
            need(
                self.bidirectional,
                "a mixer without a bidirectional form needs a causal geometry",
                lambda: f"got a bidirectional one for mixer {_name(type(self))!r}",
                "build the geometry with causal=True, or choose another mixer",
            )
        if isinstance(where, SequenceShard):
            need(
                self.supports_context_parallel,
                "a sequence sharded over processes needs a mixer that supports context parallelism",
                lambda: f"mixer {_name(type(self))!r} does not",
                "choose another mixer, such as softmax",
            )
        if self.max_length is not None:
            keys = where.shape[1]
            # inside torch.compile the number of tokens may be symbolic, so it is formatted only when the check fails
            need(
                keys <= self.max_length,
                f"this {type(self).__name__} supports at most {self.max_length} tokens (max_length)",
                lambda: f"got {keys}",
                "build it with a larger max_length, or shorten the input",
            )


def check_heads(width: int, heads: int, kv_heads: int) -> None:
    """Raise unless `heads` divides `width` and `kv_heads` divides `heads`."""
    need_positive_counts(width=width, heads=heads, kv_heads=kv_heads)
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


def _name(kind: type) -> str:
    """Name of a registered mixer or scheme as users type it (its file name); of any other class, the class name."""
    package, _, file = kind.__module__.rpartition(".")
    return file if package in {"ordinate.mixers", "ordinate.schemes"} else kind.__name__
