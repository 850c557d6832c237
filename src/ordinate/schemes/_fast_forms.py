"""Faster forms of the hooks of a scheme, and when they hold: unless a subclass overrides a hook below them.

A subclass that overrides `bias` inherits `linear_bias` from a class whose bias it replaces: slopes of another bias.
So what a scheme declares beside its hooks is read by the functions here, which leave out what is outdated. A class
that overrides a hook and means what it inherits says so in its body: `shift_invariant = True`,
`linear_bias = Alibi.linear_bias`, `hooks = Parent.hooks`. A parent whose hook is an `abstractmethod` says it of the
hooks of its subclasses.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.initial_values import Rebuilt
from ordinate.core.shapes import Positions
from ordinate.ops.log_bias import LogBias
from ordinate.ops.relative import RelativeVectors

Encoder = Callable[[Tensor], Tensor]
HOOK_TARGETS = {
    "remap_positions": "positions",
    "embed": "token embeddings",
    "encode_query": "queries",
    "encode_key": "keys",
    "score": "scores (instead of q.k)",
    "bias": "scores (bias)",
    "content_bias": "scores (content-dependent)",
    "value_bias": "attention output",
}
"""Each hook of a scheme, and where in a transformer it acts."""
# what a scheme can declare, and the hooks that it describes
FORMS: Mapping[str, tuple[str, ...]] = {
    "make_encoders": ("encode_query", "encode_key"),
    "linear_bias": ("bias",),
    "log_bias": ("bias",),
    "bias_reach": ("bias",),
    "relative_vectors": ("content_bias", "value_bias"),
    "hooks": tuple(HOOK_TARGETS),
    "shift_invariant": ("score", "bias", "content_bias", "value_bias"),
}


class FastForms(Rebuilt):
    """The faster forms that a scheme may give of its hooks; each with equal results, and none by default."""

    bias_reach: int | None = None
    """Distance from which on the bias of either side is the same number for all keys [tokens]; None: not known."""
    shift_invariant: bool
    """Whether adding a constant to all positions leaves the output unchanged. The contract suite tests both cases."""
    reads_mask: bool = False
    """Whether scores depend on which keys are visible (`where.visible`); a mask given as a tensor is then refused."""
    _overridden: Mapping[str, frozenset[str]] = {form: frozenset() for form in FORMS}

    def __init__(self) -> None:
        super().__init__()
        self.bias_dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        """Type of a bias without parameters: float32, or float64 after `.double()`."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Convert the type of the bias as that of a parameter; 16 bits leave it in float32."""
        converted = fn(torch.zeros((), dtype=self.bias_dtype))
        self.bias_dtype = torch.promote_types(converted.dtype, torch.float32)
        return super()._apply(fn, recurse)

    def _need_declared(self) -> None:
        """Raise unless a scheme with hooks declares `shift_invariant`, by which ways to compute are chosen."""
        need(
            isinstance(getattr(self, "shift_invariant", None), bool) or not self.hooks,
            "a scheme must declare whether a shift of all positions changes nothing",
            lambda: f"{type(self).__name__} does not",
            "write shift_invariant = True, or False, in its class",
        )

    def linear_bias(self, where: Geometry) -> Float[Tensor, "2 h"] | None:
        """Return the slopes of a bias that is linear in the distance: a faster way to compute it. None: it is not.

            bias(h, i, j) = -slopes[0, h] * max(p_i - p_j, 0) - slopes[1, h] * max(p_j - p_i, 0)

        On the device of the positions. Override it together with `bias`, with equal results, for one position axis.
        """
        return None

    def log_bias(self, where: Geometry) -> LogBias | None:
        """Return a bias that is piecewise linear in the logarithm of the distance, as `linear_bias` does slopes."""
        return None

    def relative_vectors(self, where: Geometry) -> RelativeVectors | None:
        """Return the vectors of `content_bias` and `value_bias` by offset: a faster way to compute both.

        Override it together with the two, with equal results, if they depend on positions by the offset only.
        Called with one query and keys at many offsets.
        """
        return None


def overridden_hooks(kind: type, base: type) -> Mapping[str, frozenset[str]]:
    """Return for each form the hooks that a class overrides below the class that gives the form.

    Args:
        kind: a class of schemes.
        base: the contract, whose hooks do nothing.
    """
    line = kind.__mro__[: kind.__mro__.index(base)]

    def places(*names: str) -> list[int]:
        return [place for place, one in enumerate(line) if any(name in vars(one) for name in names)]

    found = {}
    for form, hooks in FORMS.items():
        # what a constructor sets on an instance is of the class that has the first of the hooks
        given = places(form)[:1] or places(*hooks)[-1:]
        # what a class says of a hook that it leaves abstract, it says of those below
        own = [hook for hook in hooks if not (given and _is_abstract(getattr(line[given[0]], hook, None)))]
        found[form] = frozenset(hook for hook in own if given and min(places(hook), default=given[0]) < given[0])
    return found


def _is_abstract(hook: Any) -> bool:
    return getattr(hook, "__isabstractmethod__", False)


def with_hooks(inherited: Any, names: frozenset[str]) -> Any:
    """Return an inherited property `hooks` with the hooks that a subclass overrides: its options leave out others."""
    # torch.compile cannot call a property
    read: Any = inherited.fget if isinstance(inherited, property) else lambda scheme: inherited

    def hooks(scheme: Any) -> tuple[str, ...]:
        """Names of the hooks in use."""
        used = read(scheme)
        return (*used, *(name for name in HOOK_TARGETS if name in names and name not in used))

    return property(hooks)


def encoders_of(scheme: Any, pos: Positions) -> tuple[Encoder, Encoder]:
    """Return functions that encode queries and keys at these positions: `make_encoders`, or the hooks themselves."""
    overridden = scheme._overridden["make_encoders"]
    own = partial(scheme.encode_query, pos=pos), partial(scheme.encode_key, pos=pos)
    if len(overridden) == 2:
        return own
    of_q, of_k = scheme.make_encoders(pos)
    return own[0] if "encode_query" in overridden else of_q, own[1] if "encode_key" in overridden else of_k


def slopes_of(scheme: FastForms, where: Geometry) -> Float[Tensor, "2 h"] | None:
    """Return `linear_bias`; None also where `bias` is overridden without it."""
    return None if scheme._overridden["linear_bias"] else scheme.linear_bias(where)


def log_bias_of(scheme: FastForms, where: Geometry) -> LogBias | None:
    """Return `log_bias`; None also where `bias` is overridden without it."""
    return None if scheme._overridden["log_bias"] else scheme.log_bias(where)


def vectors_of(scheme: FastForms, where: Geometry) -> RelativeVectors | None:
    """Return `relative_vectors`; None also where what they describe is overridden without them."""
    return None if scheme._overridden["relative_vectors"] else scheme.relative_vectors(where)


def reach_of(scheme: FastForms) -> int | None:
    """Return `bias_reach`; None also where `bias` is overridden without it."""
    return None if scheme._overridden["bias_reach"] else scheme.bias_reach


def depends_on_offsets(scheme: FastForms) -> bool:
    """Whether it is declared that what the scheme adds depends on the offset alone, with the hooks that it has."""
    return scheme.shift_invariant and not scheme._overridden["shift_invariant"]
