"""Every mixer of the catalog at work: as it is, and the mixing alone on what its projections would have given it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
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


def names(*, causal: bool) -> list[str]:
    """The mixers that have a causal form, or those that have none."""
    return [name for name in catalog.names(FOLDER) if kind(name).causal == causal]


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
        mixer = _make(name, size)
        given = _without_projections(mixer, learn)
        x = size.draw(size.tokens, WIDTH, learn=learn)
        forward = _forward(mixer, name, x)
        # what the projections give is made when they are asked first
        forward()
        return forward, [x, *(y for made in given for y in made.made.values()), *trained(mixer)]

    return prepare


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Given(nn.Module):
    """In place of a projection: random numbers of its shape, made once."""

    def __init__(self, width: int, learn: bool) -> None:
        super().__init__()
        self.width, self.learn = width, learn
        self.made: dict[torch.Size, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """What is given, whatever comes."""
        if x.shape not in self.made:
            generator = torch.Generator().manual_seed(len(self.made))
            made = torch.randn(*x.shape[:-1], self.width, generator=generator)
            self.made[x.shape] = made.requires_grad_(self.learn)
        return self.made[x.shape]


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


def _without_projections(mixer: Mixer[Any], learn: bool) -> list[Given]:
    found = []
    for path, module in list(mixer.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, last = path.rpartition(".")
            put: nn.Module = nn.Identity()
            if last != "out" or module.in_features != module.out_features:
                put = Given(module.out_features, learn)
                found.append(put)
            setattr(mixer.get_submodule(parent), last, put)
    return found
