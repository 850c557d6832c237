"""Layers that can be undone, so that training need not remember what happened between them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from ordinate.mixer import State
from ordinate.models.block import Block, run
from ordinate.scheme import Placed
from ordinate.shapes import Tokens

Blocks = Literal["plain", "reversible"]


def run_reversible(
    blocks: Sequence[Block], x: Tokens, places: Sequence[Placed], states: Sequence[State | None] | None
) -> tuple[Tokens, list[State | None]]:
    """The tokens after all blocks, which pass on two streams that can be computed backwards.

        first, second = x, x
        in each block:  first = first + mixer(norm(second));   second = second + feedforward(norm(first))
        y = (first + second) / 2

    The way back computes second = second - feedforward(norm(first)), then first = first - mixer(norm(second)), from
    the last block to the first. So training holds what one branch needs, however many blocks there are, and pays by
    computing each branch twice.

    Args:
        blocks: the layers.
        x: what enters the first.
        places: where the tokens stand, as each layer's scheme sees it.
        states: what each layer remembers; None: nothing is to be remembered. What is remembered outlives the pass, so
            with it the gradient goes the usual way.
    Source: Kitaev et al. 2020, Reformer, section 3, https://arxiv.org/abs/2001.04451; Gomez et al. 2017, The
        Reversible Residual Network, https://arxiv.org/abs/1707.04585.
    Departs: the streams are kept in float64 (float32 on devices without), so that the way back meets the same numbers
        as the way there: then no bucket of a hash, no draw and no digit differs. The result is their mean; the
        authors' code joins them side by side.
    """
    wide = x.to(torch.float32 if x.device.type == "mps" else torch.float64)
    stack = Stack(blocks, places, x.dtype)
    if states is None and torch.is_grad_enabled():
        first, second = _Undone.apply(stack, wide, wide, *stack.parameters)
        left: list[State | None] = [None] * len(blocks)
    else:
        first, second, left = stack.remember(wide, wide, states)
    return ((first + second) / 2).to(x.dtype), left


@dataclass(frozen=True)
class Moment:
    """What a branch depends on beside its input: the random numbers to come and whether types are lowered."""

    numbers: Tensor
    devices: list[int]
    others: list[Tensor]
    lowered: dict[str, Any]

    @classmethod
    def now(cls, x: Tensor) -> "Moment":
        """The present one."""
        kind = x.device.type
        lowered = {"dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
        devices, others = get_device_states(x)
        return cls(torch.get_rng_state(), devices, others, {"device_type": kind} | lowered)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Be there once more, with gradients."""
        kind = self.lowered["device_type"] if self.devices else "cuda"
        with torch.random.fork_rng(self.devices, device_type=kind), torch.autocast(**self.lowered):
            torch.set_rng_state(self.numbers)
            set_device_states(self.devices, self.others, device_type=kind)
            with torch.enable_grad():
                yield


class Stack:
    """Blocks at their places, to be run and undone.

    Args:
        blocks: the layers.
        places: where the tokens stand, as each layer's scheme sees it.
        type: what the branches compute in.
    """

    def __init__(self, blocks: Sequence[Block], places: Sequence[Placed], type: torch.dtype) -> None:
        self.blocks, self.places, self.type = blocks, places, type
        self.moments: list[tuple[Moment, Moment]] = []
        modules = [*blocks, *(at.scheme for at in places)]
        self.parameters = list(dict.fromkeys(p for module in modules for p in _trained(module)))

    def remember(
        self, first: Tensor, second: Tensor, states: Sequence[State | None] | None
    ) -> tuple[Tensor, Tensor, list[State | None]]:
        """Both streams after the last block, and what each layer remembers."""
        left: list[State | None] = []
        for layer, (block, at) in enumerate(zip(self.blocks, self.places, strict=True)):
            mixed, state = block.mix(second.to(self.type), at, states[layer] if states else None)
            first = first + mixed
            second = second + block.think(first.to(self.type))
            left.append(None if states is None else state)
        return first, second, left

    def run(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Both streams after the last block; each branch is computed as it will be again, and let go."""
        # what is evaluated here must not stay in the caller's hands
        places = {at: Placed(at.scheme, at.where) for at in self.places}
        for block, at in zip(self.blocks, self.places, strict=True):
            mixing = Moment.now(first)
            with torch.enable_grad():
                first = first + block.mix(self._alone(second), places[at])[0].detach()
            thinking = Moment.now(first)
            with torch.enable_grad():
                second = second + block.think(self._alone(first)).detach()
            self.moments.append((mixing, thinking))
        return first, second

    def undo(self, first: Tensor, second: Tensor, d_first: Tensor, d_second: Tensor) -> list[Tensor | None]:
        """The gradients of both streams before the first block, and of the parameters."""
        found: dict[Tensor, Tensor] = {}
        for block, at, (mixing, thinking) in reversed(list(zip(self.blocks, self.places, self.moments, strict=True))):
            with thinking.again():
                x = self._alone(first)
                y = block.think(x)
            d_first = d_first + _gradient(y, x, d_second, [block], found)
            second = second - y.detach()
            with mixing.again():
                x = self._alone(second)
                y, _ = block.mix(x, Placed(at.scheme, at.where))
            d_second = d_second + _gradient(y, x, d_first, [block, at.scheme], found)
            first = first - y.detach()
        return [d_first, d_second, *(found.get(parameter) for parameter in self.parameters)]

    def _alone(self, x: Tensor) -> Tensor:
        return x.detach().to(self.type).requires_grad_()


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradient(y: Tensor, x: Tensor, d_y: Tensor, modules: list[nn.Module], found: dict[Tensor, Tensor]) -> Tensor:
    """The gradient of a branch's input; those of its parameters are added to what was found."""
    parameters = [parameter for module in modules for parameter in _trained(module)]
    d_x, *others = torch.autograd.grad(
        y, [x, *parameters], d_y.to(y.dtype), allow_unused=True, materialize_grads=False
    )
    for parameter, gradient in zip(parameters, others, strict=True):
        if gradient is not None:
            found[parameter] = found[parameter] + gradient if parameter in found else gradient
    return d_x


class _Undone(torch.autograd.Function):
    """Forward without a trace, backward by undoing."""

    @staticmethod
    def forward(ctx: Any, stack: Stack, first: Tensor, second: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        ctx.stack = stack
        first, second = stack.run(first, second)
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.stack.undo(*ctx.saved_tensors, *grad_outputs)


RUNS: dict[Blocks, Callable[..., tuple[Tokens, list[State | None]]]] = {"plain": run, "reversible": run_reversible}
