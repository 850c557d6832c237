"""Hooks on attention scores and attention patterns around torch.softmax."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ordinate.probing._adapter import Hooks

SOFTMAX_FUNCTIONS = {torch.softmax, Tensor.softmax, nn.functional.softmax}


class HookedSoftmax:
    """Call the `scores` and `weights` hooks around the softmax of one layer.

    Args:
        watch: the hooks.
        layer: index of the layer.
        keys: number of columns that are keys; further ones (attention sinks) are not passed to hooks.
    """

    def __init__(self, watch: Hooks, layer: int, keys: int) -> None:
        self.watch, self.layer, self.keys = watch, layer, keys
        self.seen: tuple[Tensor, Tensor] | None = None

    def __call__(self, run: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
        """Return the weights that `run` computes from the scores, after the interventions of the hooks."""
        hooks = self.watch.overridden
        if "attention_scores" in hooks:
            scores = self._put(scores, self.watch.attention_scores(self.layer, scores[..., : self.keys]))
        weights = run(scores)
        if "attention_pattern" in hooks:
            weights = self._put(weights, self.watch.attention_pattern(self.layer, weights[..., : self.keys]))
        self.seen = scores[..., : self.keys], weights[..., : self.keys]
        return weights

    def _put(self, old: Tensor, new: Tensor | None) -> Tensor:
        if new is None:
            return old
        new = new.to(old.dtype)
        return new if self.keys == old.shape[-1] else torch.cat([new, old[..., self.keys :]], -1)


class SoftmaxMode(TorchFunctionMode):
    """Torch function mode that routes every softmax through a function.

    Args:
        look: gets the function that computes the softmax, and the scores.
    """

    def __init__(self, look: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.look = look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept softmax; run other functions unchanged."""
        kwargs = kwargs or {}
        if func not in SOFTMAX_FUNCTIONS:
            return func(*args, **kwargs)
        return self.look(lambda scores: func(scores, *args[1:], **kwargs), args[0])
