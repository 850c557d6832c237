"""How tokens exchange information inside a layer."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from ordinate.checks import need
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Keys, Tokens, Values


@dataclass(frozen=True, eq=False)
class State:
    """What one layer remembers of the tokens it has read.

    Args:
        k: their encoded keys.
        v: their values.
    """

    k: Keys
    v: Values

    def extend(self, k: Keys, v: Values) -> "State":
        """This memory followed by newer keys and values."""
        need(
            self.k.shape[:2] == k.shape[:2] and self.k.shape[3] == k.shape[3],
            "what is remembered and what is new need one batch and the same heads",
            f"got {tuple(self.k.shape)} and {tuple(k.shape)}",
            "use the cache with the batch and the model that filled it",
        )
        return State(torch.cat([self.k, k], 2), torch.cat([self.v, v], 2))


class Mixer(nn.Module):
    """A way for tokens to exchange information.

    Must: `honours` and `forward`; take what it needs by keyword (`width`, `heads`, `kv_heads`, `dropout`).
    """

    honours: ClassVar[frozenset[str]]
    """The hooks of a scheme that it uses; a scheme with others would silently say nothing, so it is refused."""

    @abstractmethod
    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State]:
        """Mix the tokens of `x`; `at` has them as queries, and everything remembered and them as keys."""

    @classmethod
    def check_scheme(cls, scheme: Scheme) -> None:
        """Raise unless this mixer honours every hook that the scheme uses."""
        unused = sorted(set(scheme.hooks) - cls.honours)
        need(
            not unused,
            f"{cls.__name__} must use every hook of the scheme",
            f"it ignores {', '.join(unused)} of {type(scheme).__name__}",
            f"choose a scheme that uses {', '.join(sorted(cls.honours))} only, or another mixer",
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
