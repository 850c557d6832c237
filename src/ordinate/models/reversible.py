"""Reversible residual layers (RevNet, Reformer): the backward pass recomputes activations by inversion."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states

from ordinate.core.checks import need
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import widest_float
from ordinate.mixers._mixer import MixerState
from ordinate.models.block import Block, run_blocks
from ordinate.ops.double_backward import untraceable
from ordinate.schemes._scheme import Placed

BlockKind = Literal["plain", "reversible"]


def run_reversible(
    blocks: Sequence[Block], x: Tokens, places: Sequence[Placed], states: Sequence[MixerState | None] | None
) -> tuple[Tokens, list[MixerState | None]]:
    """Run layers on two residual streams that can be inverted, so that the backward pass needs no stored activations.

        first, second = x, x
        in each block:  first = first + mixer(norm(second));   second = second + feedforward(norm(first))
        y = (first + second) / 2

    The backward pass computes second = second - feedforward(norm(first)), then first = first - mixer(norm(second)),
    from the last block to the first. Activation memory is that of one branch, whatever the depth, at the price of
    computing each branch twice.

    Args:
        blocks: the layers.
        x: input of the first layer.
        places: for each layer, its scheme at the geometry of the tokens.
        states: state of each layer after the previous tokens; None: no states are kept. States are part of the
            autograd graph beyond this pass, so with them gradients are computed in the usual way.
    Source: Kitaev et al. 2020, Reformer, section 3, https://arxiv.org/abs/2001.04451; Gomez et al. 2017, The
        Reversible Residual Network, https://arxiv.org/abs/1707.04585.
    Departs: the streams are kept in float64 (float32 on devices without it), so that the backward pass reconstructs
        the inputs of the forward pass exactly after rounding to the branch's dtype: hash buckets and results do not
        differ. The result is the mean of the streams; the authors' code concatenates them.
    """
    wide = x.to(widest_float(x.device))
    stack = ReversibleStack(blocks, places, x.dtype)
    if states is None and torch.is_grad_enabled() and untraceable(x) is None:
        first, second = _Reversible.apply(stack, wide, wide, *stack.parameters)
        after: list[MixerState | None] = [None] * len(blocks)
    else:
        first, second, after = stack.run_with_states(wide, wide, states)
    return ((first + second) / 2).to(x.dtype), after


@dataclass(frozen=True)
class RandomState:
    """Random number generator states and autocast settings at the time of a forward computation."""

    numbers: Tensor
    devices: list[int]
    others: list[Tensor]
    lowered: dict[str, Any]

    @classmethod
    def capture(cls, x: Tensor) -> "RandomState":
        """Return the current states of the CPU and of the devices that hold x."""
        kind = x.device.type
        lowered = {"dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
        devices, others = get_device_states(x)
        return cls(torch.get_rng_state(), devices, others, {"device_type": kind} | lowered)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore them inside the context, with gradients enabled."""
        kind = self.lowered["device_type"] if self.devices else "cuda"
        with torch.random.fork_rng(self.devices, device_type=kind), torch.autocast(**self.lowered):
            torch.set_rng_state(self.numbers)
            set_device_states(self.devices, self.others, device_type=kind)
            with torch.enable_grad():
                yield


class ReversibleStack:
    """Reversible layers with their schemes, for a forward pass and its inversion.

    Args:
        blocks: the layers.
        places: for each layer, its scheme at the geometry of the tokens.
        type: dtype in which the branches compute.
    """

    def __init__(self, blocks: Sequence[Block], places: Sequence[Placed], type: torch.dtype) -> None:
        self.blocks, self.places, self.type = blocks, places, type
        self.random_states: list[tuple[RandomState, RandomState]] = []
        self.modules = nn.ModuleList([*blocks, *(at.scheme for at in places)])
        self.parameters = list(self.modules.parameters())

    def run_with_states(
        self, first: Tensor, second: Tensor, states: Sequence[MixerState | None] | None
    ) -> tuple[Tensor, Tensor, list[MixerState | None]]:
        """Forward pass with autograd and states: both streams, and the new state of each layer."""
        after: list[MixerState | None] = []
        for layer, (block, at) in enumerate(zip(self.blocks, self.places, strict=True)):
            mixed, state = block.mixer_branch(second.to(self.type), at, states[layer] if states else None)
            first = first + mixed
            second = second + block.feedforward_branch(first.to(self.type))
            after.append(None if states is None else state)
        return first, second, after

    def run(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Forward pass without an autograd graph; records the random state of each branch for recomputation."""
        # fresh Placed objects: encodings cached in the caller's would belong to graphs that are discarded here
        places = {at: Placed(at.scheme, at.where) for at in self.places}
        for block, at in zip(self.blocks, self.places, strict=True):
            mixer_rng = RandomState.capture(first)
            with torch.enable_grad():
                first = first + block.mixer_branch(self._leaf(second), places[at])[0].detach()
            feedforward_rng = RandomState.capture(first)
            with torch.enable_grad():
                second = second + block.feedforward_branch(self._leaf(first)).detach()
            self.random_states.append((mixer_rng, feedforward_rng))
        return first, second

    def backward(
        self, first: Tensor, second: Tensor, d_first: Tensor, d_second: Tensor, parameters: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Backward pass: invert the layers, and return the gradients of both input streams and of the parameters.

        The branches are computed again with the parameters of the forward pass, which may no longer be those of the
        modules: `torch.func.functional_call` puts others there for the forward pass only.
        """
        found: dict[Tensor, Tensor] = {}
        leaves, modules = parameters, self.modules
        # a hook of a parameter acts on the gradient that is returned
        if any(x is not own or x._backward_hooks for x, own in zip(parameters, modules.parameters(), strict=True)):
            leaves = [x.detach().requires_grad_(x.requires_grad) for x in parameters]
            modules = replaced(modules, leaves)
        parts: list[Any] = list(modules)
        layers = zip(parts, parts[len(self.blocks) :], self.places, self.random_states, strict=False)
        for block, scheme, at, (mixer_rng, feedforward_rng) in reversed(list(layers)):
            with feedforward_rng.restored():
                x = self._leaf(first)
                y = block.feedforward_branch(x)
            d_first = d_first + _gradient(y, x, d_second, [block], found)
            second = second - y.detach()
            with mixer_rng.restored():
                x = self._leaf(second)
                y, _ = block.mixer_branch(x, Placed(scheme, at.where))
            d_second = d_second + _gradient(y, x, d_first, [block, scheme], found)
            first = first - y.detach()
        return [d_first, d_second, *(found.get(leaf) for leaf in leaves)]

    def _leaf(self, x: Tensor) -> Tensor:
        return x.detach().to(self.type).requires_grad_()


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradient(y: Tensor, x: Tensor, d_y: Tensor, modules: list[nn.Module], found: dict[Tensor, Tensor]) -> Tensor:
    """Return the gradient of a branch's input, and add those of its parameters to `found`."""
    parameters = [parameter for module in modules for parameter in _trained(module)]
    d_x, *others = torch.autograd.grad(
        y, [x, *parameters], d_y.to(y.dtype), allow_unused=True, materialize_grads=False
    )
    for parameter, gradient in zip(parameters, others, strict=True):
        if gradient is not None:
            found[parameter] = found[parameter] + gradient if parameter in found else gradient
    return d_x


class _Reversible(torch.autograd.Function):
    """Autograd function of the reversible stack: forward without a graph, backward by inversion."""

    @staticmethod
    def forward(
        ctx: Any, stack: ReversibleStack, first: Tensor, second: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.stack = stack
        first, second = stack.run(first, second)
        ctx.save_for_backward(first, second, *parameters)
        return first, second

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        # grad mode is `create_graph`; the inversion is not part of any graph
        need(
            not torch.is_grad_enabled(),
            "reversible layers have first derivatives only",
            "got create_graph=True",
            'build the model with blocks="plain"',
        )
        first, second, *parameters = ctx.saved_tensors
        return None, *ctx.stack.backward(first, second, *grad_outputs, parameters)


RUNNERS: dict[BlockKind, Callable[..., tuple[Tokens, list[MixerState | None]]]] = {
    "plain": run_blocks,
    "reversible": run_reversible,
}
