"""Find where a layer adds its attention output to the residual stream, by comparing activations."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Tokens

# a difference of two activations below this many units in the last place says nothing about its factor
_NOISE = 1000


@dataclass(frozen=True, eq=False)
class AttentionOutput:
    """Where the attention output of a layer comes from.

    Args:
        module: the module whose output is added to the residual stream.
        scale: the factor with which it is added, such as the `residual_multiplier` of Granite.
    """

    module: nn.Module
    scale: float = 1.0

    def added(self, look: Callable[[Tokens], Tokens | None], out: Any) -> Any:
        """Call `look` on what is added; return the module output that adds what it returns; None: unchanged."""
        first = first_output(out)
        if self.scale == 1:
            return replace_first_output(out, look(first))
        shown = first * self.scale
        new = look(shown)
        # what comes back unchanged must not be rounded
        return replace_first_output(out, None if new is None or new is shown else new / self.scale)


@dataclass(eq=False)
class ModuleCall:
    """First input and output of one call of a module, with the times of entry and exit."""

    module: nn.Module
    entered: Tensor | None
    left: Tensor | None = None
    began: int = 0
    ended: int = 0


@dataclass(eq=False)
class CallTrace:
    """Inputs and outputs of every module of a layer, in execution order."""

    events: list[ModuleCall] = field(default_factory=list)
    time: int = 0

    def follow(self, layer: nn.Module) -> ExitStack:
        """Record all modules of a layer until the returned stack is closed."""
        stop = ExitStack()
        for module in layer.modules():
            stop.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
            stop.callback(module.register_forward_hook(self._leave).remove)
        return stop

    def _enter(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.time += 1
        first = next((x for x in (*given, *named.values()) if _floating(x)), None)
        # cloned, since later modules may change it in place
        self.events.append(ModuleCall(module, None if first is None else first.clone(), began=self.time))

    def _leave(self, module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        self.time += 1
        event = next(event for event in reversed(self.events) if event.module is module and not event.ended)
        first = first_output(out)
        event.left, event.ended = first.clone() if _floating(first) else None, self.time


def find_attention_outputs(
    layers: Sequence[tuple[nn.Module, nn.Module]], run: Callable[[], object], *, later: bool = False
) -> list[AttentionOutput | None]:
    """Find in each layer the module whose output A is the attention output added to the layer input x.

    Either x + A is the input of a later module (sequential blocks) or the output of the layer (no feed-forward), or
    x + A + M is the output of the layer (parallel blocks), or x + c A, with a number c, is one of the first two sums.
    Activations are compared, not names.

    Args:
        layers: each layer with its attention module.
        run: a forward pass of the model.
        later: whether other branches of the layer come before, as self-attention before cross-attention: x is then
            any input or output of a module before attention.

    Returns:
        The module and c of each layer; None where no sum matches.
    """
    traces = [CallTrace() for _ in layers]
    with ExitStack() as stop:
        for (layer, _), trace in zip(layers, traces, strict=True):
            stop.enter_context(trace.follow(layer))
        run()
    return [_branch(trace, *layer, later=later) for layer, trace in zip(layers, traces, strict=True)]


def _branch(trace: CallTrace, layer: nn.Module, attention: nn.Module, *, later: bool) -> AttentionOutput | None:
    whole = next((event for event in trace.events if event.module is layer), None)
    look = next((event for event in trace.events if event.module is attention), None)
    if whole is None or look is None or whole.entered is None or whole.left is None:
        return None
    x, left = whole.entered, whole.left
    parts = [
        (event, event.left.reshape(x.shape))
        for event in sorted(trace.events, key=lambda event: event.ended)
        if event.began >= look.began and event.left is not None and event.left.numel() == x.numel()
    ]
    sums = [
        (part, a, one, after)
        for part, a in parts
        for one in (_streams(trace, look, x) if later else [x])
        for after in (*(event.entered for event in trace.events if event.began > part.ended), left)
    ]
    for part, a, one, after in sums:
        if _same(one + a, after):
            return AttentionOutput(part.module)
    for index, (part, a) in enumerate(parts):
        others = (m for _, m in parts[index + 1 :])
        if part.ended <= look.ended and any(_same(x + a + m, left) for m in others):
            return AttentionOutput(part.module)
    for part, a, one, after in sums:
        scale = _scale(one, a, after)
        if scale is not None:
            return AttentionOutput(part.module, scale)
    return None


def _scale(x: Tensor, a: Tensor, after: Tensor | None) -> float | None:
    """Return the number c for which x + c a is `after`; None if there is none, or c a is not seen beside x."""
    if after is None or after.numel() != x.numel() or after.shape[-1] != x.shape[-1]:
        return None
    wide, own = a.double().flatten(), (after.reshape(x.shape).double() - x.double()).flatten()
    scale = float((wide @ own) / (wide @ wide).clamp_min(torch.finfo(torch.float64).tiny))
    seen = bool(own.abs().max() > _NOISE * torch.finfo(x.dtype).eps * x.abs().max())
    return scale if seen and _same((x.double() + scale * a.double()).to(x.dtype), after) else None


def _streams(trace: CallTrace, look: ModuleCall, x: Tensor) -> list[Tensor]:
    """Return what may be the residual stream at an attention module: what entered or left a module before it."""
    held = [event.entered for event in trace.events if event.began <= look.began]
    held += [event.left for event in trace.events if 0 < event.ended < look.began]
    return [one.reshape(x.shape) for one in held if one is not None and one.numel() == x.numel()]


def first_output(out: Any) -> Any:
    """Return the first output of a module: layers of some models return a tuple."""
    return out[0] if isinstance(out, tuple | list) else out


def replace_first_output(out: Any, new: Tokens | None) -> Any:
    """Replace the first output of a module; None if there is no replacement."""
    if new is None:
        return None
    return (new, *out[1:]) if isinstance(out, tuple | list) else new


def _floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _same(x: Tensor, y: Tensor | None) -> bool:
    if y is None or y.numel() != x.numel() or y.shape[-1] != x.shape[-1]:
        return False
    return bool((x - y.reshape(x.shape)).abs().max() <= 16 * torch.finfo(x.dtype).eps * x.abs().max())
