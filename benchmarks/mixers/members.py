"""Workloads of every mixer of the catalog: the whole mixer, and the mixing alone without its projections."""

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

from benchmarks.harness.workload import HEAD_WIDTH, HEADS, WIDTH, Work
from ordinate import Geometry
from ordinate.attention._attend import BACKEND_VARIABLE
from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.schemes import NoPosition
from ordinate.testing import mixer_checks, run_check
from ordinate.testing.mixer import MixerCase

# replaced while mixers are timed without their projections
LINEAR = functional.linear
FOLDER = "ordinate.mixers"
BASE = "sdpa, causal"
SOFTMAX = "softmax by sdpa"


@dataclass(frozen=True)
class Size:
    """Problem size.

    Args:
        tokens: tokens of each sequence.
        batch: number of sequences.
    """

    tokens: int
    batch: int = 1

    def draw(self, *shape: int, learn: bool, seed: int = 0) -> Tensor:
        """Draw a tensor with a fixed seed."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(self.batch, *shape, generator=generator, device="cpu")
        return drawn.to(torch.get_default_device()).requires_grad_(learn)


Prepare = Callable[[Size, bool], Work]


def names() -> list[str]:
    """Return all mixers that pass the contract checks, those with a causal form first."""
    green = [name for name in catalog.names(FOLDER) if is_green(name) and reaches(name)]
    return sorted(green, key=lambda name: not kind(name).causal)


def kind(name: str) -> type[Mixer[Any]]:
    """Return the class of a mixer."""
    return catalog.load(FOLDER, Mixer, name)


@cache
def is_green(name: str) -> bool:
    """Whether a mixer passes every contract check."""
    results = [run_check(check, MixerCase(kind(name))) for check in mixer_checks()]
    red = [result for result in results if not (result.passed or result.skipped_reason)]
    for result in red:
        print(f"not timed: {name}: {result.name}: {result.message}")
    return not red


def whole(name: str) -> Prepare:
    """A whole mixer with its projections, without a position scheme."""

    def prepare(size: Size, learn: bool) -> Work:
        mixer, x = _make(name, size), size.draw(size.tokens, WIDTH, learn=learn)
        return _forward(mixer, name, x), [x, *trained(mixer)]

    return prepare


def mixing(name: str) -> Prepare:
    """A mixer without its projections: each returns a fixed random tensor, and the output projection its input."""

    def prepare(size: Size, learn: bool) -> Work:
        mixer, x = _make(name, size), size.draw(size.tokens, WIDTH, learn=learn)
        free = Free(mixer, learn)
        forward = free.wrapped(_forward(mixer, name, x))
        # the random tensors are created in the first pass
        forward()
        return forward, [x, *free.given.values(), *trained(mixer)]

    return prepare


@cache
def reaches(name: str) -> bool:
    """Whether the output depends on every replaced projection; otherwise a part of the mixer was skipped."""
    forward, leaves = mixing(name)(Size(64), True)
    out, given = forward(), leaves[1 : len(leaves) - len(trained(_make(name, Size(64))))]
    found = torch.autograd.grad(out, given, torch.ones_like(out), allow_unused=True) if given else ()
    if any(gradient is None for gradient in found):
        print(f"not timed: {name}: its output does not depend on its projections")
        return False
    return True


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that require gradients."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Free:
    """Replaces the projections of a mixer by random tensors of their output shapes, created once.

    Args:
        mixer: the mixer; its output projection is called `out`.
        learn: whether these tensors require gradients.
    """

    def __init__(self, mixer: Mixer[Any], learn: bool) -> None:
        last = getattr(mixer, "out", None)
        self.last, self.learn = getattr(last, "weight", last), learn
        # an output projection that is not a linear layer is replaced by the identity
        self.own = last if isinstance(last, nn.Module) and not hasattr(last, "weight") else None
        self.home = sys.modules[type(mixer).__module__]
        self.given: dict[tuple[int, ...], Tensor] = {}

    def wrapped(self, forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Return the same pass with replaced projections."""
        put = {(functional, "linear"): self._linear}
        # mixers that imported the function by name, or have their own
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
            columns = len(weight)
            if x.shape[-1] > columns:
                # more channels than columns of the model: a sum, so that each of them has a gradient
                return functional.pad(x, (0, -x.shape[-1] % columns)).unflatten(-1, (-1, columns)).sum(-2)
            return x if columns == x.shape[-1] else x.repeat(*(1,) * (x.ndim - 1), columns // x.shape[-1])
        if 4 * min(weight.shape) <= WIDTH:
            # a factor of a low-rank product, or a few gates, which count as mixing
            return LINEAR(x, weight, bias)
        return self._give(weight, *x.shape[:-1], len(weight))

    def _columns(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return self._give(layer.weight, x.shape[0], len(layer.weight), x.shape[1])

    def _give(self, weight: Tensor, *shape: int) -> Tensor:
        key = id(weight), *shape
        if key not in self.given:
            generator = torch.Generator().manual_seed(len(self.given))
            drawn = torch.randn(*shape, generator=generator, device="cpu").to(weight.device)
            self.given[key] = drawn.requires_grad_(self.learn)
        return self.given[key]


def plain(size: Size, learn: bool) -> Work:
    """PyTorch's causal attention on given queries, keys and values: the baseline of the mixing alone."""
    q, k, v = (size.draw(HEADS, size.tokens, HEAD_WIDTH, learn=learn, seed=seed) for seed in range(3))
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]


def softmax(size: Size, learn: bool) -> Work:
    """Our softmax mixer, computed by PyTorch's SDPA: the baseline of whole mixers."""
    forward, leaves = whole("softmax")(size, learn)

    def forced() -> Tensor:
        before = os.environ.get(BACKEND_VARIABLE)
        os.environ[BACKEND_VARIABLE] = "sdpa"
        try:
            return forward()
        finally:
            os.environ.pop(BACKEND_VARIABLE)
            if before is not None:
                os.environ[BACKEND_VARIABLE] = before

    return forced, leaves


def _make(name: str, size: Size) -> Mixer[Any]:
    torch.manual_seed(1)
    sizes = {"width": WIDTH, "heads": HEADS, "kv_heads": HEADS, "head_width": HEAD_WIDTH, "layers": 12, "layer": 5}
    sizes |= {"max_length": size.tokens, "scale": 0.02, "dropout": 0.0}
    return kind(name)(**catalog.bind(kind(name), {}, sizes))


def _forward(mixer: Mixer[Any], name: str, x: Tensor) -> Callable[[], Tensor]:
    build = Geometry.causal if kind(name).causal else Geometry.full
    where = build(x.shape[1])
    return lambda: mixer(x, NoPosition().at(where))[0]
