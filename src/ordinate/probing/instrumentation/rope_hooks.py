"""Hooks on queries and keys before RoPE in transformers models."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Keys, Queries, Values
from ordinate.probing._adapter import Hooks, NotApplicable
from ordinate.probing.instrumentation.patching import patched_attribute, patched_first_input
from ordinate.probing.instrumentation.position_inputs import Patch

ROPE_FUNCTION = "apply_rotary_pos_emb"
"""Name of the RoPE function in nearly every transformers model file."""


@dataclass(frozen=True, eq=False)
class RopeCall:
    """A call of the RoPE function, for queries or keys: tensors of shape (batch, heads, tokens, channels).

    Args:
        before: the input.
        after: the output.
        again: applies the same rotation to another input.
    """

    before: Tensor
    after: Tensor
    again: Callable[[Tensor], Tensor]

    def before_rope(self, x: Tensor) -> Tensor | None:
        """Return whole heads before RoPE; None if the rotated channels are not the first of a head.

        Args:
            x: the heads as used in attention.
        """
        size, after = self.before.shape[-1], self.after.to(x.dtype)
        front = x[..., :size]
        return torch.cat([self.before.to(x.dtype), x[..., size:]], -1) if torch.equal(front, after) else None

    def after_rope(self, x: Tensor) -> Tensor:
        """Apply the rotation to whole heads."""
        size = self.before.shape[-1]
        return torch.cat([self.again(x[..., :size].to(self.before.dtype)).to(x.dtype), x[..., size:]], -1)


class RopeHooks:
    """Calls the `raw` hook of a watch with queries and keys before RoPE.

    If the RoPE function gets whole heads, queries and keys together, the hook is called on its inputs. If it gets
    only some channels of each head, as in Phi, or keys and queries in separate calls, as in GPT-J, the hook is called
    when attention uses them: the channels of a head are joined again, and changed heads are rotated by the same
    rotation.

    Args:
        watch: the hooks.
    """

    def __init__(self, watch: Hooks) -> None:
        self.watch, self.layer, self.width = watch, 0, 0
        self.turns: list[RopeCall] = []

    def follow(self, attentions: Sequence[nn.Module]) -> Iterator[Patch]:
        """Yield the context managers that install the hooks, for the attention modules in layer order."""
        for layer, module in enumerate(attentions):
            yield patched_first_input(module, partial(self._begin, layer, getattr(module, "head_dim", 0)))
        for space in {sys.modules[type(module).__module__] for module in attentions}:
            if hasattr(space, ROPE_FUNCTION):
                yield patched_attribute(space, ROPE_FUNCTION, partial(self._rotate, getattr(space, ROPE_FUNCTION)))
        yield patched_attribute(self.watch, "qkv", partial(self._late, self.watch.qkv))

    def _begin(self, layer: int, width: int, _: Tensor) -> None:
        self.layer, self.width, self.turns = layer, width, []

    def _rotate(self, original: Any, first: Tensor, second: Tensor, *given: Any, **named: Any) -> Any:
        if second.ndim != first.ndim:
            out = original(first, second, *given, **named)

            def again(x: Tensor) -> Tensor:
                return original(x.transpose(1, 2), second, *given, **named).transpose(1, 2)

            # in this layout the axis of tokens precedes that of heads
            self.turns.append(RopeCall(first.transpose(1, 2), out.transpose(1, 2), again))
            return out
        if first.shape[-1] < self.width:
            q, k = original(first, second, *given, **named)
            keys = RopeCall(second, k, lambda x: original(first, x, *given, **named)[1])
            self.turns = [keys, RopeCall(first, q, lambda x: original(x, second, *given, **named)[0])]
            return q, k
        q, k = self.watch.qk_before_rope(self.layer, first, second) or (first, second)
        return original(q, k, *given, **named)

    def _late(self, marked: Any, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Call the `raw` hook for heads that were rotated in parts, then the `marked` hook."""
        new = None
        if len(self.turns) == 2:
            keys, queries = self.turns
            whole = queries.before_rope(q), keys.before_rope(k)
            if whole[0] is None or whole[1] is None:
                if self.watch.qk_before_rope(layer, queries.before, keys.before) is not None:
                    raise NotApplicable(
                        "the rotated channels are not the first ones of each head: change heads as they are `marked`"
                    )
            elif (changed := self.watch.qk_before_rope(layer, whole[0], whole[1])) is not None:
                q, k = queries.after_rope(changed[0]), keys.after_rope(changed[1])
                new = q, k, v
        return marked(layer, q, k, v) or new


def no_rope(*given: Any, **named: Any) -> Any:
    """Replacement of the RoPE function that returns its inputs."""
    first, second = [*given, *named.values()][:2]
    return (first, second) if second.ndim == first.ndim else first
