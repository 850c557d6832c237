"""Linear attention that reads from left to right: chunk by chunk, in time and memory that grow with the text."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.shapes import Outputs, Queries

# a chunk this long stays in the nearest memory of a CPU; elsewhere fewer, longer steps are faster [tokens]
ON_CPU, ELSEWHERE = 64, 512
Sums = Float[Tensor, "b h d e"]
Peaks = Float[Tensor, "b h places"]


def linear_attention(
    q: Queries, k: Float[Tensor, "b h i d"], v: Float[Tensor, "b h i e"], sums: Sums, peaks: Peaks | None = None
) -> tuple[Outputs, Sums]:
    """Each token reads the sum of what it and those before it wrote, by products of queries and keys.

        out_i = q_i S_i,   S_i = sum over j <= i of k_j v_j^T, after the sums of what was read before

    Where keys are too large for numbers of this kind, they come divided by e^peak, and the sums with them:

        out_i = q_i S_i,   S_i = e^(peak_(i-1) - peak_i) S_(i-1) + k_j v_j^T

    Exactly 0 of a later token reaches an earlier one. Gradients flow through all but the peaks.

    Args:
        q: the features of queries.
        k: the features of keys.
        v: values.
        sums: what was read before.
        peaks: the logarithm of what the sums and then each token's key are divided by; they never fall. None: 0.

    Returns:
        A row for each query, and the sums behind the last token.
    """
    if q.shape[2] == 0:
        return v, sums
    known = None if peaks is None else peaks.detach().flatten(0, 1)
    out, sums_after = _Chunks.apply(q, k, v, sums.flatten(0, 1), known)
    return out, sums_after.unflatten(0, q.shape[:2])


@dataclass(frozen=True)
class _Fade:
    """What becomes of numbers between the tokens of a chunk, from the one before it to its last."""

    pairs: Tensor
    enter: Tensor | float = 1.0
    leave: Tensor | float = 1.0
    keep: Tensor | float = 1.0


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, peaks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        out, before = _beside(q, v.shape[3]), []
        for rows in _cuts(q):
            (a, b, c), fade = _taken(rows, q, k, v), _fade(q, peaks, rows)
            before.append(sums)
            entered = torch.bmm(a, sums).mul_(fade.enter)
            read = entered.baddbmm_(torch.bmm(a, b.mT).mul_(fade.pairs), c)
            out[:, :, rows] = read.unflatten(0, q.shape[:2])
            sums = torch.baddbmm(sums * fade.keep, b.mT, c * fade.leave)
        ctx.save_for_backward(q, k, v, peaks, *before)
        return out, sums

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        gradient, after = grad_outputs
        q, k, v, peaks, *before = ctx.saved_tensors
        made = [_beside(x, x.shape[3]) for x in (q, k, v)]
        for rows, sums in zip(reversed(_cuts(q)), reversed(before), strict=True):
            (a, b, c, up), fade = _taken(rows, q, k, v, gradient), _fade(q, peaks, rows)
            pairs, slopes = torch.bmm(a, b.mT).mul_(fade.pairs), torch.bmm(up, c.mT).mul_(fade.pairs)
            entered = up * fade.enter
            dq = torch.baddbmm(torch.bmm(slopes, b), entered, sums.mT)
            dk = torch.baddbmm(torch.bmm(slopes.mT, a), c * fade.leave, after.mT)
            dv = torch.bmm(pairs.mT, up).add_(torch.bmm(b, after).mul_(fade.leave))
            for whole, part in zip(made, (dq, dk, dv), strict=True):
                whole[:, :, rows] = part.unflatten(0, q.shape[:2])
            after = torch.baddbmm(after * fade.keep, a.mT, entered)
        return *made, after, None


def _cuts(q: Tensor) -> list[slice]:
    length = ON_CPU if q.device.type == "cpu" else ELSEWHERE
    return [slice(begin, min(begin + length, q.shape[2])) for begin in range(0, q.shape[2], length)]


def _taken(rows: slice, *tensors: Tensor) -> list[Tensor]:
    """Some tokens of all heads, laid out one head after another while they are near."""
    return [x[:, :, rows].flatten(0, 1) for x in tensors]


def _beside(x: Queries, columns: int) -> Outputs:
    """Room for so many numbers of each token, the heads of a token side by side: there its projections read them."""
    batch, heads, tokens, _ = x.shape
    return x.new_empty(batch, tokens, heads, columns).transpose(1, 2)


def _fade(q: Tensor, peaks: Tensor | None, rows: slice) -> _Fade:
    if peaks is None:
        size = rows.stop - rows.start
        return _Fade(q.new_ones(size, size).tril_())
    before, own = peaks[:, rows.start, None, None], peaks[:, rows.start + 1 : rows.stop + 1, None]
    last = own[:, -1:]
    return _Fade((own.mT - own).exp_().tril_(), (before - own).exp_(), (own - last).exp_(), (before - last).exp_())
