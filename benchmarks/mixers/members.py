"""Every mixer of the catalog at work: as it is, and the mixing alone on what its projections would have given it."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention.contenders import HEAD_WIDTH, HEADS, WIDTH, Work
from ordinate import Geometry, Unmarked, catalog
from ordinate.attention import FORCED
from ordinate.mixer import Mixer
from ordinate.testing import mixer_checks, outcome
from ordinate.testing.mixer import MixerCase

FOLDER = "ordinate.mixers"
BASE = "sdpa, causal"
SOFTMAX = "softmax by sdpa"


@dataclass(frozen=True)
class Size:
    """How much is mixed.

    Args:
        tokens: of each sequence.
        batch: sequences.
    """

    tokens: int
    batch: int = 1

    def draw(self, *shape: int, learn: bool, seed: int = 0) -> Tensor:
        """Random numbers for each sequence; the same every time."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.batch, *shape, generator=generator).requires_grad_(learn)


Prepare = Callable[[Size, bool], Work]


def names() -> list[str]:
    """Every mixer whose promises hold, those that have a causal form first."""
    green = [name for name in catalog.names(FOLDER) if is_green(name) and reaches(name)]
    return sorted(green, key=lambda name: not kind(name).causal)


def kind(name: str) -> type[Mixer[Any]]:
    """The class of a member."""
    return catalog.load(FOLDER, Mixer, name)


@cache
def is_green(name: str) -> bool:
    """Whether a mixer keeps every promise of the contract."""
    results = [outcome(check, MixerCase(kind(name))) for check in mixer_checks()]
    red = [result for result in results if not (result.passed or result.skipped_reason)]
    for result in red:
        print(f"not timed: {name}: {result.name}: {result.message}")
    return not red


def whole(name: str) -> Prepare:
    """A mixer with its projections, without a scheme."""

    def prepare(size: Size, learn: bool) -> Work:
        mixer, x = _make(name, size), size.draw(size.tokens, WIDTH, learn=learn)
        return _forward(mixer, name, x), [x, *trained(mixer)]

    return prepare


def mixing(name: str) -> Prepare:
    """A mixer whose projections cost nothing: each gives what it is given, and the last lets through what comes."""

    def prepare(size: Size, learn: bool) -> Work:
        mixer, x = _make(name, size), size.draw(size.tokens, WIDTH, learn=learn)
        free = Free(mixer, learn)
        forward = free.wrapped(_forward(mixer, name, x))
        # what the projections give is made when they are asked first
        forward()
        return forward, [x, *free.given.values(), *trained(mixer)]

    return prepare


@cache
def reaches(name: str) -> bool:
    """Whether all that stands in for the projections of a mixer counts in what comes out."""
    forward, leaves = mixing(name)(Size(64), True)
    out, given = forward(), leaves[1 : len(leaves) - len(trained(_make(name, Size(64))))]
    found = torch.autograd.grad(out, given, torch.ones_like(out), allow_unused=True) if given else ()
    if any(gradient is None for gradient in found):
        print(f"not timed: {name}: its result does not depend on its projections")
        return False
    return True


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Free:
    """In place of the projections of a mixer: random numbers of their shapes, made once.

    Args:
        mixer: whose projections; the last one is called `out`.
        learn: whether gradients of what is given are wanted.
    """

    def __init__(self, mixer: Mixer[Any], learn: bool) -> None:
        last = getattr(mixer, "out", None)
        self.last, self.learn = getattr(last, "weight", last), learn
        # one that is no linear layer lets through what comes as it is
        self.own = last if isinstance(last, nn.Module) and not hasattr(last, "weight") else None
        self.home = sys.modules[type(mixer).__module__]
        self.given: dict[tuple[int, ...], Tensor] = {}

    def wrapped(self, forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """The same pass with free projections."""
        put = {(functional, "linear"): self._linear}
        # members that took the function out of its module, or have one of their own
        put |= {(self.home, "linear"): self._linear} if hasattr(self.home, "linear") else {}
        put |= {(self.home, "_columns"): self._columns} if hasattr(self.home, "_columns") else {}
        put |= {} if self.own is None else {(self.own, "forward"): lambda y: y}

        def freed() -> Tensor:
            with ExitStack() as stack:
                for (place, name), instead in put.items():
                    stack.enter_context(patch.object(place, name, instead))
                return forward()

        return freed

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight is self.last:
            return x if len(weight) == x.shape[-1] else x.repeat(*(1,) * (x.ndim - 1), len(weight) // x.shape[-1])
        return self._give(weight, *x.shape[:-1], len(weight))

    def _columns(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return self._give(layer.weight, x.shape[0], len(layer.weight), x.shape[1])

    def _give(self, weight: Tensor, *shape: int) -> Tensor:
        key = id(weight), *shape
        if key not in self.given:
            generator = torch.Generator().manual_seed(len(self.given))
            self.given[key] = torch.randn(*shape, generator=generator).requires_grad_(self.learn)
        return self.given[key]


def plain(size: Size, learn: bool) -> Work:
    """PyTorch's causal attention on given queries, keys and values: what mixing is compared with."""
    q, k, v = (size.draw(HEADS, size.tokens, HEAD_WIDTH, learn=learn, seed=seed) for seed in range(3))
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]


def softmax(size: Size, learn: bool) -> Work:
    """Our softmax attention, left to PyTorch: what whole mixers are compared with."""
    forward, leaves = whole("softmax")(size, learn)

    def forced() -> Tensor:
        before = os.environ.get(FORCED)
        os.environ[FORCED] = "sdpa"
        try:
            return forward()
        finally:
            os.environ.pop(FORCED)
            if before is not None:
                os.environ[FORCED] = before

    return forced, leaves


def _make(name: str, size: Size) -> Mixer[Any]:
    torch.manual_seed(1)
    sizes = {"width": WIDTH, "heads": HEADS, "kv_heads": HEADS, "head_width": HEAD_WIDTH, "layers": 12, "layer": 5}
    sizes |= {"max_length": size.tokens, "scale": 0.02, "dropout": 0.0}
    return kind(name)(**catalog.bind(kind(name), {}, sizes))


def _forward(mixer: Mixer[Any], name: str, x: Tensor) -> Callable[[], Tensor]:
    build = Geometry.causal if kind(name).causal else Geometry.full
    where = build(x.shape[1])
    return lambda: mixer(x, Unmarked().at(where))[0]
