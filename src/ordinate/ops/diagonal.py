"""Filters whose memory is made of numbers that live each by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ordinate.ops.state_space import Memories, StateSpace, as_complex, as_real, in_type

Discretisation = Literal["zoh", "bilinear"]
Modes = Complex[Tensor, "h m"]


@dataclass(frozen=True, eq=False)
class Diagonal(StateSpace):
    """A memory of m complex numbers that turn and fade; each is kept as its real and its imaginary part.

    Args:
        powers: by what each has been multiplied j tokens later, for j = 1 .. c.
    """

    powers: Complex[Tensor, "h c m"]

    def advancing(self, tokens: int) -> Callable[[Memories, Memories], Memories]:
        """Turn and fade each number by itself."""
        factor = self.powers[:, tokens - 1, None]

        def advance(x: Memories, new: Memories) -> Memories:
            return as_real(torch.addcmul(as_complex(new), factor, as_complex(x)))

        return advance


def discretise(a: Modes, step: Float[Tensor, "h 1"], how: Discretisation) -> tuple[Modes, Modes]:
    """Factor and gain of x_t = factor x_(t-1) + gain u_t, which stands for dx/dt = a x + u read each `step`.

    zoh:       factor = exp(step a),                         gain = (factor - 1) / a
    bilinear:  factor = (1 + step a / 2) / (1 - step a / 2),  gain = step / (1 - step a / 2)
    """
    if how == "zoh":
        grown = torch.expm1(step * a)
        return 1 + grown, grown / a
    half = step * a / 2
    return (1 + half) / (1 - half), step / (1 - half)


def diagonal(factor: Modes, weight: Modes, skip: Float[Tensor, "h"], tokens: int, type: torch.dtype) -> Diagonal:
    """The filter y_t = 2 Re(weight . x_t) + skip u_t, where x_t = factor x_(t-1) + u_t, for chunks of so many tokens.

    Args:
        factor: how each mode turns and fades from token to token, complex128: errors of phase grow with distance.
        weight: how it is read.
        skip: how much of each token goes by the memory.
        tokens: of a chunk.
        type: of the results, float32 or float64.
    """
    powers = factor[:, None]
    while powers.shape[1] < tokens:
        powers = torch.cat([powers, powers * powers[:, -1:]], 1)
    powers = in_type(powers[:, :tokens], type)
    into = torch.cat([powers[:, :-1].flip(1), torch.ones_like(powers[:, :1])], 1)
    # of a sum of products the real part is wanted
    out = as_real((in_type(2 * weight, type)[:, None] * powers).conj())
    own = 2 * weight.real.sum(1).to(type) + skip.to(type)
    later = out.unflatten(2, (-1, 2))[:, :-1, :, 0].sum(2)
    return Diagonal(torch.cat([own[:, None], later], 1), as_real(into), out, powers)
