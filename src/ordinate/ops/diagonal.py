"""Diagonal state space models (S4D): discretisation, and the convolution kernel of a chunk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ordinate.core.tensors import on_device
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.state_space import CHUNK, Signals, States, StateSpace, as_complex, as_real, to_real_dtype

Discretisation = Literal["zoh", "bilinear"]
Modes = Complex[Tensor, "h m"]


@dataclass(frozen=True, eq=False)
class DiagonalStateSpace(StateSpace):
    """State space with a diagonal state matrix of m complex modes, stored as real and imaginary parts.

    Args:
        powers: factor^j of each mode, for j = 1 .. c.
    """

    powers: Complex[Tensor, "h c m"]

    def advancing(self, tokens: int) -> Callable[[States, States], States]:
        """Multiply each mode by its factor^tokens."""
        factor = self.powers[:, tokens - 1, None]

        def advance(x: States, new: States) -> States:
            return as_real(torch.addcmul(as_complex(new), factor, as_complex(x)))

        return advance


def discretise(a: Modes, step: Float[Tensor, "h 1"], how: Discretisation) -> tuple[Modes, Modes]:
    """Discretise dx/dt = a x + u with step size `step`: factor and gain of x_t = factor x_(t-1) + gain u_t.

    zoh:       factor = exp(step a),                         gain = (factor - 1) / a
    bilinear:  factor = (1 + step a / 2) / (1 - step a / 2),  gain = step / (1 - step a / 2)
    """
    if how == "zoh":
        grown = torch.expm1(step * a)
        return 1 + grown, grown / a
    half = step * a / 2
    return (1 + half) / (1 - half), step / (1 - half)


@custom_operator("u", "x")
def read_diagonal(
    u: Signals, x: States, factor: Modes, weight: Modes, skip: Float[Tensor, "h"]
) -> tuple[Signals, States]:
    """Return the output at each token, and the final state, of `diagonal_state_space`, chunk by chunk.

    Args:
        u: input signals; rows are independent.
        x: initial state.
        factor, weight, skip: as there.
    """
    tokens = max(1, min(u.shape[2], CHUNK))
    return diagonal_state_space(factor, weight, skip, tokens, u.dtype).read(u, x)


def diagonal_state_space(
    factor: Modes, weight: Modes, skip: Float[Tensor, "h"], tokens: int, type: torch.dtype
) -> DiagonalStateSpace:
    """Return y_t = 2 Re(weight . x_t) + skip u_t with x_t = factor x_(t-1) + u_t, for chunks of `tokens` tokens.

    Args:
        factor: discretised state matrix, one complex128 number per mode: phase errors grow with distance.
        weight: output projection of each mode.
        skip: direct (feed-through) term of each channel.
        tokens: chunk length.
        type: dtype of the result, float32 or float64.
    """
    # powers by repeated doubling: log2(tokens) products, and fewer roundings than a running product
    powers = factor[:, None]
    while powers.shape[1] < tokens:
        powers = torch.cat([powers, powers * powers[:, -1:]], 1)
    powers = to_real_dtype(powers[:, :tokens], type, skip.device)
    into = torch.cat([powers[:, :-1].flip(1), torch.ones_like(powers[:, :1])], 1)
    # conjugated, so that a product of real and imaginary parts with the state is the real part of the complex product
    out = as_real((to_real_dtype(2 * weight, type, skip.device)[:, None] * powers).conj_physical())
    own = 2 * on_device(weight.real.sum(1), type, skip.device) + skip.to(type)
    later = out.unflatten(2, (-1, 2))[:, :-1, :, 0].sum(2)
    return DiagonalStateSpace(torch.cat([own[:, None], later], 1), as_real(into), out, powers)
