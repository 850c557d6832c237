"""The contract of a mixer, as checks that anyone can run on a class of their own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ordinate import catalog
from ordinate.geometry import Geometry
from ordinate.mixer import Mixer, State
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme
from ordinate.schemes.none import Unmarked
from ordinate.shapes import Tokens
from ordinate.testing.case import SIZES, WIDTH
from ordinate.testing.check import Check, InapplicableError, Outcome, outcome

_FOLDER = "ordinate.testing.mixers"


@dataclass(frozen=True)
class MixerCase:
    """One mixer class with its options, and what it takes to try it out. The same every time: all seeds are fixed.

    Args:
        kind: the class.
        options: what to construct it with beside the sizes.
    """

    kind: type[Mixer[Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def mixer(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Mixer[Any]:
        """An instance in evaluation, whose parameters were stirred: one born at zero would pass for anything."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            mixer = self.kind(**catalog.bind(self.kind, self.options, {**SIZES, "layer": 1}))
            with torch.no_grad():
                for parameter in mixer.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return mixer.to(dtype).eval()

    def scheme(self) -> Scheme:
        """The scheme that it is usually compared with."""
        return Recipe.read(self.kind.usual_scheme, SIZES).schemes[0]

    def tokens(self, batch: int, count: int, dtype: torch.dtype = torch.float64) -> Tokens:
        """Token vectors."""
        generator = torch.Generator().manual_seed(2)
        return torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64).to(dtype)

    def mixed(self, x: Tokens, where: Geometry, mixer: Mixer[Any] | None = None) -> Tokens:
        """The tokens, mixed at a geometry under the usual scheme."""
        return (mixer or self.mixer(x.dtype))(x, self.scheme().at(where))[0]

    def plain(self, x: Tokens) -> Tokens:
        """The tokens, all of which see each other, mixed without a scheme."""
        return self.mixer(x.dtype)(x, Unmarked().at(Geometry.full(x.shape[1])))[0]

    def in_pieces(self, x: Tokens, wheres: list[Geometry]) -> Tokens:
        """The tokens read piece by piece, each at its own geometry, which has those before as keys."""
        mixer, scheme = self.mixer(x.dtype), self.scheme()
        outs: list[Tensor] = []
        state: State | None = None
        for piece, where in zip(x.split([where.shape[0] for where in wheres], 1), wheres, strict=True):
            out, state = mixer(piece, scheme.at(where), state)
            outs.append(out)
        return torch.cat(outs, 1)

    def geometries(self, tokens: int) -> list[Geometry]:
        """The forms that it has: causal, from both sides, or both."""
        forms = {Geometry.causal: self.kind.causal, Geometry.full: self.kind.bidirectional}
        return [build(tokens) for build, has in forms.items() if has]

    def need(self, holds: bool, reason: str) -> None:
        """Skip the check, for this reason, unless something holds."""
        if not holds:
            raise InapplicableError(reason)


def mixer_checks() -> list[Check[MixerCase]]:
    """Every promise that a mixer makes: each public function of each file of `mixers/` beside this file."""
    modules = [import_module(f"{_FOLDER}.{name}") for name in catalog.names(_FOLDER)]
    return [
        Check(name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def check_mixer(kind: type[Mixer[Any]], **options: Any) -> list[Outcome]:
    """Try every promise of the contract out on a mixer class.

    Sizes that the constructor asks for by name are given: those that our models offer (width, heads, max_length ...).

    Args:
        kind: the class.
        options: further keywords to construct it with.

    Raises:
        ValueError: an unknown option, or a keyword that nothing gives.
    """
    case = MixerCase(kind, options)
    case.mixer()
    return [outcome(check, case) for check in mixer_checks()]
