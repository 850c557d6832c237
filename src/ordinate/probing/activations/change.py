"""Replace an activation in a forward pass: by a tensor, a recording, a function, or itself to get its gradient."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.probing._adapter import MASKED_SCORE, Hooks
from ordinate.probing.activations.names import ACTIVATIONS, ROTATED, Activation, HookFunctions, check_indices

Replacement = Tensor | Mapping[tuple[str, int], Tensor] | Callable[[Tensor], Tensor]
"""A tensor, a recording, or a function of the activation."""


def combined(first: Hooks, second: Hooks) -> HookFunctions:
    """Return the hooks of both; the second gets what the first leaves."""

    def both(name: str) -> Callable[..., Any]:
        one, other = getattr(first, name), getattr(second, name)

        def call(layer: int, *given: Any) -> Any:
            made = one(layer, *given)
            after = given if made is None else made if isinstance(made, tuple) else (made,)
            last = other(layer, *after)
            return made if last is None else last

        return call

    functions = {name: both(name) for name in first.overridden & second.overridden}
    for own in (first, second):
        functions |= {name: getattr(own, name) for name in own.overridden - functions.keys()}
    return HookFunctions(functions, skip_head=second.skip_head)


@dataclass(eq=False)
class Change:
    """One replaced activation.

    Args:
        name: its name.
        value: what replaces it.
        layers: the layers.
        heads: the heads; None: it has none.
        tokens: the tokens; None: all.
        rotated: layers that called the hook before RoPE.
        applied: layers in which it was replaced in the current pass.
    """

    name: str
    value: Replacement
    layers: list[int]
    heads: list[int] | None
    tokens: int | Sequence[int] | None
    rotated: set[int] = field(default_factory=set)
    applied: set[int] = field(default_factory=set)

    @property
    def kind(self) -> Activation:
        """The activation."""
        return ACTIVATIONS[self.name]

    @property
    def hooks(self) -> HookFunctions:
        """The hooks that replace it."""
        sites: dict[str, dict[str, Callable[..., Any]]] = {
            "resid_pre": {"residual": self._put},
            "resid_post": {"residual": lambda layer, x: self._put(layer - 1, x)},
            "attn_scores": {"attention_scores": self._scores},
            "pattern": {"attention_pattern": self._put},
            "z": {"head_output": self._put},
            "attn_out": {"attention_output": self._put},
            "v": {"qkv": self._qkv},
        }
        rope = {"qk_before_rope": self._before_rope, "qkv": self._qkv}
        return HookFunctions(sites.get(self.name, rope))

    def _before_rope(self, layer: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None:
        self.rotated.add(layer)
        new = None if self.name in ROTATED else self._put(layer, k if self.kind.of_keys else q)
        if new is None:
            return None
        return (q, new) if self.kind.of_keys else (new, k)

    def _qkv(self, layer: int, *qkv: Tensor) -> tuple[Tensor, ...] | None:
        turned = layer in self.rotated
        # of a layer with RoPE, q and k have been replaced before it
        if self.name != "v" and turned != (self.name in ROTATED):
            return None
        place = 2 if self.name == "v" else int(self.kind.of_keys)
        new = self._put(layer, qkv[place])
        return None if new is None else (*qkv[:place], new, *qkv[place + 1 :])

    def _scores(self, layer: int, scores: Tensor) -> Tensor | None:
        new = self._put(layer, scores)
        return None if new is None else torch.where(scores > MASKED_SCORE, new, scores)

    def _put(self, layer: int, x: Tensor) -> Tensor | None:
        if layer not in self.layers:
            return None
        self.applied.add(layer)
        place = self._place(x)
        old = x[place]
        new = self._replacement(layer, x, place)
        must = f"a replacement of {self.name} in layer {layer} must broadcast to {tuple(old.shape)}"
        fits = isinstance(new, Tensor) and _broadcasts(new, old)
        came = f"got {tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__}"
        need(fits, must, came, "give that shape, or one text in place of the batch")
        whole = x.clone()
        whole[place] = new.to(x)
        return whole

    def _replacement(self, layer: int, x: Tensor, place: tuple[Any, ...]) -> Any:
        if isinstance(self.value, Tensor):
            return self.value
        if not isinstance(self.value, Mapping):
            return self.value(x[place])
        held = self.value[self.name, layer]
        must = f"recorded {self.name} of layer {layer} must broadcast to {tuple(x.shape)}"
        need(_broadcasts(held, x), must, f"got {tuple(held.shape)}", "record as many tokens, of one text or as many")
        return held.expand_as(x)[place]

    def _place(self, x: Tensor) -> tuple[Any, ...]:
        """Index of the chosen part: (batch, heads, tokens) or (batch, tokens)."""
        axis = 2 if self.kind.has_heads else 1
        chosen = torch.tensor(check_indices("tokens", self.tokens, x.shape[axis]), device=x.device)
        if self.heads is None:
            return slice(None), chosen
        return slice(None), torch.tensor(self.heads, device=x.device)[:, None], chosen[None]


@dataclass(eq=False)
class Marked(Change):
    """An activation that is replaced by itself: a tensor of its own in the graph, which receives its gradient.

    Args:
        marked: the tensor of each layer.
    """

    marked: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, layers: Sequence[int]) -> "Marked":
        """Return the change that marks an activation in some layers."""
        return cls(name, torch.zeros(()), list(layers), None, None)

    def _put(self, layer: int, x: Tensor) -> Tensor | None:
        if layer not in self.layers:
            return None
        # without a graph so far, as with frozen weights, it begins here
        own = x.clone() if x.requires_grad else x.detach().clone().requires_grad_()
        own.retain_grad()
        self.marked[layer] = own
        # a model that changes its activations in place must not change this one
        return own.clone()


def _broadcasts(small: Tensor, large: Tensor) -> bool:
    sizes = zip(reversed(small.shape), reversed(large.shape), strict=False)
    return small.ndim <= large.ndim and all(one in (1, other) for one, other in sizes)
