"""Linear state space models, evaluated chunk by chunk with matrix products."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ordinate.core.tensors import on_device
from ordinate.ops.double_backward import untraceable

# a chunk costs one Toeplitz product among its tokens and two products with the state; its length changes no result
CHUNK = 32
Signals = Float[Tensor, "h r n"]
States = Float[Tensor, "h r s"]
Kernel = Float[Tensor, "h c"]
Rows = Float[Tensor, "h c s"]


@dataclass(frozen=True, eq=False)
class StateSpace(ABC):
    """A linear state space model over a chunk of c tokens, for each of h channels.

        y_t = sum over j <= t of kernel[t-j] u_j + out[t] . x
        x' = A^c x + sum over j of into[j] u_j

    Args:
        kernel: convolution kernel: effect of a token on its own and later outputs.
        into: contribution of each token of the chunk to the next state.
        out: effect of the initial state on each output.
    """

    kernel: Kernel
    into: Rows
    out: Rows

    @abstractmethod
    def advancing(self, tokens: int) -> Callable[[States, States], States]:
        """Return the function (x, new) -> A^tokens x + new; at most c tokens."""

    def read(self, u: Signals, x: States | None = None) -> tuple[Signals, States]:
        """Return the output at each token, and the final state.

        Args:
            u: input signals; rows are independent.
            x: initial state; None: zeros.
        """
        chunk, tokens = self.kernel.shape[1], u.shape[2]
        x = u.new_zeros(*u.shape[:2], self.into.shape[2]) if x is None else x
        whole = tokens // chunk
        y, x = self._read_chunks(u[..., : whole * chunk].unflatten(2, (whole, chunk)), x)
        if whole * chunk == tokens:
            return y, x
        rest, x = self._read_chunks(u[..., None, whole * chunk :], x)
        return torch.cat([y, rest], 2), x

    def _read_chunks(self, u: Float[Tensor, "h r k c"], x: States) -> tuple[Signals, States]:
        rows, chunks, size = u.shape[1:]
        if chunks == 0:
            return u.flatten(2), x
        laid = torch.Tensor.contiguous if untraceable(u) else _Contiguous.apply
        flat, advance = laid(u.flatten(1, 2)), self.advancing(size)
        left = (flat @ self.into[:, -size:]).unflatten(1, (rows, chunks))
        before = []
        for new in left.unbind(2):
            before.append(x)
            x = advance(x, new)
        known = torch.stack(before, 2).flatten(1, 2) @ self.out[:, :size].mT
        y = laid(torch.baddbmm(known, flat, _toeplitz(self.kernel[:, :size])))
        return y.unflatten(1, (rows, chunks)).flatten(2), x


def read_reversed(read: Callable[[Signals], Signals], u: Signals) -> Signals:
    """Apply a filter from right to left; the output at a token depends on later tokens only."""
    y = read(u.flip(2))
    return torch.cat([torch.zeros_like(y[..., :1]), y[..., :-1]], 2).flip(2)


class _Contiguous(torch.autograd.Function):
    """Make a tensor and its gradient contiguous: bmm loops over the batch for other layouts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return x.contiguous()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Tensor | None:
        return None if grad_outputs[0] is None else grad_outputs[0].contiguous()


def as_complex(x: Rows) -> Complex[Tensor, "h c m"]:
    """View pairs of real and imaginary parts as complex numbers."""
    return torch.view_as_complex(x.unflatten(2, (-1, 2)))


def as_real(x: Complex[Tensor, "h c m"]) -> Rows:
    """View complex numbers as pairs of real and imaginary parts."""
    return torch.view_as_real(x.resolve_conj()).flatten(2)


def to_real_dtype(x: Complex[Tensor, "*any"], type: torch.dtype, device: torch.device) -> Complex[Tensor, "*any"]:
    """Convert complex numbers to parts of this real dtype, on this device."""
    return torch.view_as_complex(on_device(torch.view_as_real(x), type, device))


def _toeplitz(kernel: Kernel) -> Float[Tensor, "h c c"]:
    """Toeplitz matrix of a causal kernel: entry (j, t) is kernel[t-j], 0 for t < j."""
    size = kernel.shape[1]
    # c equal rows of 2c numbers, flattened and reshaped to rows of 2c - 1, shift each row by one more to the right
    rows = torch.cat([kernel, torch.zeros_like(kernel)], 1)[:, None].expand(-1, size, -1).flatten(1)
    return rows[:, : size * (2 * size - 1)].unflatten(1, (size, 2 * size - 1))[..., :size]
