"""The small case in which linear attention with decay by Triton is compared with the plain formula."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ordinate.ops.triton.proofs import first_difference

# several chunks of tokens, the last of which is not full
BATCH, HEADS, TOKENS = 2, 4, 75
NAMES = ("output", "last state", *(f"gradient of {name}" for name in ("q", "k", "v", "w", "the bonus", "start")))


def disagreement(recurrence: Callable[..., Any], plain: Callable[..., Any], form: Any) -> str | None:
    """Return how the operator differs from the plain formula in a small case; None: it agrees.

    Compared are the output, the last state, and the gradients of all inputs, which ask something of both.

    Args:
        recurrence: the operator, of the plain formula and q, k, v, w, bonus and start.
        plain: the plain formula.
        form: as in `ordinate.ops.triton.recurrence`.
    """
    inputs, upstream = _drawn(form)

    def found(compute: Callable[..., Any], dtype: torch.dtype) -> list[Tensor]:
        leaves = [None if x is None else x.to(dtype).requires_grad_() for x in inputs]
        with torch.enable_grad():
            made = compute(*leaves)
            learned = [x for x in leaves if x is not None]
            return [*made, *torch.autograd.grad(made, learned, [x.to(dtype) for x in upstream])]

    names = [name for name, x in zip(NAMES, (0, 0, *inputs), strict=True) if x is not None]
    exact, usual = found(plain, torch.float64), found(plain, torch.float32)
    ours = found(lambda *given: recurrence(plain, *given), torch.float32)
    return first_difference(names, ours, usual, exact)


def _drawn(form: Any) -> tuple[list[Tensor | None], list[Tensor]]:
    """Draw inputs, and gradients of the outputs, as projections leave them: tokens before heads."""
    # of its own, so that global random numbers stay as they are
    generator = torch.Generator("cpu").manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32, device="cpu")

    def tokens(heads: int, channels: int) -> Tensor:
        return noise(BATCH, TOKENS, heads, channels).transpose(1, 2)

    groups = HEADS // 2 if form.grouped else HEADS
    q, k = (tokens(groups, form.width) for _ in range(2))
    # most decays are weak, so that chunks leave something of the state; some of one head leave nothing, some all
    logs = -(tokens(HEADS, 1 if form.shared else form.width) - 3).exp()
    logs[:, 0, ::13], logs[:, 1, ::17] = -300.0, 0.0
    v, start = tokens(HEADS, form.depth), noise(BATCH, HEADS, form.width, form.depth)
    bonus = noise(HEADS, form.width) if form.before else None
    inputs = [None if x is None else x.to(form.device) for x in (q, k, v, logs, bonus, start)]
    return inputs, [x.to(form.device) for x in (tokens(HEADS, form.depth), noise(*start.shape))]
