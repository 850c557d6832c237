"""See the scores and the weights of attention that others compute."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ordinate.subject import Watch

SOFTMAX = {torch.softmax, Tensor.softmax, nn.functional.softmax}


class Softmax:
    """One softmax of attention, watched.

    Args:
        watch: what looks on.
        layer: whose attention it is.
        keys: how many of its columns are keys; others (sinks) are left alone.
    """

    def __init__(self, watch: Watch, layer: int, keys: int) -> None:
        self.watch, self.layer, self.keys = watch, layer, keys
        self.seen: tuple[Tensor, Tensor] | None = None

    def __call__(self, run: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
        """The weights that `run` makes of the scores, both as the watch leaves them."""
        hooks = self.watch.hooks
        if "scores" in hooks:
            scores = self._put(scores, self.watch.scores(self.layer, scores[..., : self.keys]))
        weights = run(scores)
        if "weights" in hooks:
            weights = self._put(weights, self.watch.weights(self.layer, weights[..., : self.keys]))
        self.seen = scores[..., : self.keys], weights[..., : self.keys]
        return weights

    def _put(self, old: Tensor, new: Tensor | None) -> Tensor:
        if new is None:
            return old
        new = new.to(old.dtype)
        return new if self.keys == old.shape[-1] else torch.cat([new, old[..., self.keys :]], -1)


class Softmaxes(TorchFunctionMode):
    """While it is entered, every softmax is handed to something that looks on.

    Args:
        look: is given what computes the weights of scores, and the scores.
    """

    def __init__(self, look: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.look = look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, or have it looked at."""
        kwargs = kwargs or {}
        if func not in SOFTMAX:
            return func(*args, **kwargs)
        return self.look(lambda scores: func(scores, *args[1:], **kwargs), args[0])
