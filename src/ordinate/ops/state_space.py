"""Linear filters with a memory, which read chunks of tokens by matrix products."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

# a chunk costs one product among its own tokens and two with the memory; how many tokens it has changes no result
CHUNK = 32
Signals = Float[Tensor, "h r n"]
Memories = Float[Tensor, "h r s"]
Kernel = Float[Tensor, "h c"]
Rows = Float[Tensor, "h c s"]


@dataclass(frozen=True, eq=False)
class StateSpace(ABC):
    """What a linear filter with a memory does with the next c tokens, in each of h channels.

        y_t = sum over j <= t of kernel[t-j] u_j + out[t] . x
        x' = A^c x + sum over j of into[j] u_j

    Args:
        kernel: what a token does to the outputs from its own on.
        into: what each of the c tokens leaves in the memory.
        out: what the memory does to the outputs of the tokens that follow.
    """

    kernel: Kernel
    into: Rows
    out: Rows

    @abstractmethod
    def advancing(self, tokens: int) -> Callable[[Memories, Memories], Memories]:
        """The function (x, new) -> A^tokens x + new; at most c tokens."""

    def read(self, u: Signals, x: Memories | None = None) -> tuple[Signals, Memories]:
        """What the filter gives at each token, and what it remembers in the end.

        Args:
            u: what comes in, in rows that know nothing of each other.
            x: what it remembers of the tokens before; None: nothing.
        """
        chunk, tokens = self.kernel.shape[1], u.shape[2]
        x = u.new_zeros(*u.shape[:2], self.into.shape[2]) if x is None else x
        whole = tokens // chunk
        y, x = self._read_chunks(u[..., : whole * chunk].unflatten(2, (whole, chunk)), x)
        if whole * chunk == tokens:
            return y, x
        rest, x = self._read_chunks(u[..., None, whole * chunk :], x)
        return torch.cat([y, rest], 2), x

    def read_back(self, u: Signals) -> Signals:
        """What the filter, reading from the last token to the first, gives at each token before it reads that one."""
        y, _ = self.read(u.flip(2))
        return torch.cat([torch.zeros_like(y[..., :1]), y[..., :-1]], 2).flip(2)

    def _read_chunks(self, u: Float[Tensor, "h r k c"], x: Memories) -> tuple[Signals, Memories]:
        rows, chunks, size = u.shape[1:]
        if chunks == 0:
            return u.flatten(2), x
        flat, advance = _Contiguous.apply(u.flatten(1, 2)), self.advancing(size)
        left = (flat @ self.into[:, -size:]).unflatten(1, (rows, chunks))
        before = []
        for new in left.unbind(2):
            before.append(x)
            x = advance(x, new)
        known = torch.stack(before, 2).flatten(1, 2) @ self.out[:, :size].mT
        y = _Contiguous.apply(torch.baddbmm(known, flat, _toeplitz(self.kernel[:, :size])))
        return y.unflatten(1, (rows, chunks)).flatten(2), x


class _Contiguous(torch.autograd.Function):
    """Lay numbers and their gradients out anew: PyTorch multiplies other matrices of a batch one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.contiguous()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        return grad_outputs[0].contiguous()


def as_complex(x: Rows) -> Complex[Tensor, "h c m"]:
    """Numbers that are kept as real and imaginary part."""
    return torch.view_as_complex(x.unflatten(2, (-1, 2)))


def as_real(x: Complex[Tensor, "h c m"]) -> Rows:
    """Each complex number as its real and its imaginary part."""
    return torch.view_as_real(x.resolve_conj()).flatten(2)


def in_type(x: Complex[Tensor, "*any"], type: torch.dtype) -> Complex[Tensor, "*any"]:
    """Complex numbers whose parts are of this type."""
    return torch.view_as_complex(torch.view_as_real(x).to(type))


def _toeplitz(kernel: Kernel) -> Float[Tensor, "h c c"]:
    """Entry (j, t) is kernel[t-j]; 0 where t comes before j."""
    size = kernel.shape[1]
    # rows of 2c numbers laid end to end and cut anew into rows of 2c - 1: each begins one place further back
    rows = torch.cat([kernel, torch.zeros_like(kernel)], 1)[:, None].expand(-1, size, -1).flatten(1)
    return rows[:, : size * (2 * size - 1)].unflatten(1, (size, 2 * size - 1))[..., :size]
