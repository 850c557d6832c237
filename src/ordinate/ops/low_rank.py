"""State space models with a diagonal plus low-rank state matrix (S4)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.state_space import CHUNK, Signals, States, StateSpace, as_complex, as_real

Half = Complex[Tensor, "#h m"]
Modes = Complex[Tensor, "h r m"]


@dataclass(frozen=True, eq=False)
class DenseStateSpace(StateSpace):
    """State space with a dense state matrix.

    Args:
        squares: A^1, A^2, A^4 ..., each applied to the state from the right, as a row vector.
    """

    squares: tuple[Float[Tensor, "h s s"], ...]

    def advancing(self, tokens: int) -> Callable[[States, States], States]:
        """Multiply by the squares in the binary expansion of `tokens`."""
        used = [square for place, square in enumerate(self.squares) if tokens >> place & 1]

        def advance(x: States, new: States) -> States:
            for square in used:
                x = x @ square
            return x + new

        return advance


@dataclass(frozen=True, eq=False)
class DiagonalPlusLowRank:
    """Continuous-time state space dx/dt = (diag(a) - p p*) x + b u with output y = 2 Re(c . x) + skip u.

    One of each conjugate pair of modes is stored.

    Args:
        a: diagonal of the state matrix.
        p: vector of its rank-1 part.
        b: input vector.
        c: output vector.
        skip: direct (feed-through) term.
        step: step size of the discretisation [time per token].
    """

    a: Half
    p: Half
    b: Half
    c: Complex[Tensor, "h m"]
    skip: Float[Tensor, "h"]
    step: Float[Tensor, "h 1"]

    def step_on(self, x: Modes, u: Float[Tensor, "h r"]) -> Modes:
        """Return the state one token later, by the bilinear rule, in O(modes) operations.

        (2/step - A) x' = (2/step + A) x + 2 b u,  and by Woodbury, with d = 1 / (2/step - a),
        (2/step - A)^-1 = d - d p (1 + p* d p)^-1 p* d
        """
        twice, p = (2 / self.step)[:, None], self.p[:, None]
        y = (twice + self.a[:, None]) * x - p * _inner(p, x) + 2 * self.b[:, None] * u[..., None]
        d = 1 / (twice - self.a[:, None])
        y = d * y
        return y - d * p * _inner(p, y) / (1 + _inner(p, d * p))

    def read(self, x: Modes, u: Float[Tensor, "h r"]) -> Float[Tensor, "h r"]:
        """Return the output at the last token read, u, whose input is in the state already."""
        return 2 * (self.c[:, None] * x).real.sum(2) + self.skip[:, None] * u

    def dense(self, tokens: int) -> DenseStateSpace:
        """Convert to a dense state space for chunks of `tokens` tokens, with powers of the matrix by squaring."""
        channels, modes = self.c.shape
        unit = torch.eye(2 * modes, device=self.c.device, dtype=self.skip.dtype).expand(channels, -1, -1)
        one = torch.ones_like(self.skip)[:, None]
        b = as_real(self.step_on(torch.zeros_like(self.c)[:, None], one))
        squares = [as_real(self.step_on(as_complex(unit), torch.zeros_like(unit[..., 0])))]
        into, out = b, squares[0] @ as_real(2 * self.c.conj_physical()[:, None]).mT
        while into.shape[1] < tokens:
            into = torch.cat([into @ squares[-1], into], 1)
            out = torch.cat([out, squares[-1] @ out], 2)
            squares.append(squares[-1] @ squares[-1])
        into, out = into[:, -tokens:], out[..., :tokens].mT
        impulse = torch.eye(1, tokens, device=b.device, dtype=b.dtype).expand(channels, -1)
        kernel = self.read(as_complex(into.flip(1)), impulse)
        return DenseStateSpace(kernel, into, out, tuple(squares))


@custom_operator("u", "x")
def read_low_rank(
    u: Signals,
    x: States,
    a: Half,
    p: Half,
    b: Half,
    c: Complex[Tensor, "h m"],
    skip: Float[Tensor, "h"],
    step: Float[Tensor, "h 1"],
) -> tuple[Signals, States]:
    """Return the output at each token, and the final state, chunk by chunk.

    Args:
        u: input signals; rows are independent.
        x: initial state.
        a, p, b, c, skip, step: of `DiagonalPlusLowRank`.
    """
    tokens = max(1, min(u.shape[2], CHUNK))
    return DiagonalPlusLowRank(a, p, b, c, skip, step).dense(tokens).read(u, x)


def _inner(p: Complex[Tensor, "#h #r m"], x: Complex[Tensor, "#h #r m"]) -> Float[Tensor, "h r 1"]:
    """Inner product p* x over all modes, including the conjugates that are not stored."""
    return 2 * (p.conj_physical() * x).real.sum(2, keepdim=True)
