"""Filters whose memory is turned by a diagonal matrix minus one of rank one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ordinate.ops.state_space import Memories, StateSpace, as_complex, as_real

Half = Complex[Tensor, "#h m"]
Modes = Complex[Tensor, "h r m"]


@dataclass(frozen=True, eq=False)
class Dense(StateSpace):
    """A memory in which every number acts on every other.

    Args:
        squares: the matrix that takes the memory, as a row, 1, 2, 4 ... tokens further.
    """

    squares: tuple[Float[Tensor, "h s s"], ...]

    def advancing(self, tokens: int) -> Callable[[Memories, Memories], Memories]:
        """Multiply by the squares that make up so many tokens."""
        used = [square for place, square in enumerate(self.squares) if tokens >> place & 1]

        def advance(x: Memories, new: Memories) -> Memories:
            for square in used:
                x = x @ square
            return x + new

        return advance


@dataclass(frozen=True, eq=False)
class LowRank:
    """A memory that lives by dx/dt = (diag(a) - p p*) x + b u and is read as y = 2 Re(c . x) + skip u.

    Half of its numbers stand for all, the others are their conjugates.

    Args:
        a: the diagonal.
        p: the part of rank one.
        b: what is taken in.
        c: what is read.
        skip: how much goes by the memory.
        step: time from token to token.
    """

    a: Half
    p: Half
    b: Half
    c: Complex[Tensor, "h m"]
    skip: Float[Tensor, "h"]
    step: Float[Tensor, "h 1"]

    def step_on(self, x: Modes, u: Float[Tensor, "h r"]) -> Modes:
        """The memory one token later, by the bilinear rule, in as many operations as it has numbers.

        (2/step - A) x' = (2/step + A) x + 2 b u,  and by Woodbury, with d = 1 / (2/step - a),
        (2/step - A)^-1 = d - d p (1 + p* d p)^-1 p* d
        """
        twice, p = (2 / self.step)[:, None], self.p[:, None]
        y = (twice + self.a[:, None]) * x - p * _inner(p, x) + 2 * self.b[:, None] * u[..., None]
        d = 1 / (twice - self.a[:, None])
        y = d * y
        return y - d * p * _inner(p, y) / (1 + _inner(p, d * p))

    def read(self, x: Modes, u: Float[Tensor, "h r"]) -> Float[Tensor, "h r"]:
        """What the memory gives at the token that it took in last, u."""
        return 2 * (self.c[:, None] * x).real.sum(2) + self.skip[:, None] * u

    def dense(self, tokens: int) -> Dense:
        """The same filter for chunks of so many tokens: powers of its matrix, found by squaring."""
        channels, modes = self.c.shape
        unit = torch.eye(2 * modes, device=self.c.device, dtype=self.skip.dtype).expand(channels, -1, -1)
        one = torch.ones_like(self.skip)[:, None]
        b = as_real(self.step_on(torch.zeros_like(self.c)[:, None], one))
        squares = [as_real(self.step_on(as_complex(unit), torch.zeros_like(unit[..., 0])))]
        into, out = b, squares[0] @ as_real(2 * self.c.conj()[:, None]).mT
        while into.shape[1] < tokens:
            into = torch.cat([into @ squares[-1], into], 1)
            out = torch.cat([out, squares[-1] @ out], 2)
            squares.append(squares[-1] @ squares[-1])
        into, out = into[:, -tokens:], out[..., :tokens].mT
        impulse = torch.eye(1, tokens, device=b.device, dtype=b.dtype).expand(channels, -1)
        kernel = self.read(as_complex(into.flip(1)), impulse)
        return Dense(kernel, into, out, tuple(squares))


def _inner(p: Complex[Tensor, "#h #r m"], x: Complex[Tensor, "#h #r m"]) -> Float[Tensor, "h r 1"]:
    """p* x over all numbers, of which half are given."""
    return 2 * (p.conj() * x).real.sum(2, keepdim=True)
