"""Contract tests of mixers, which can be run on any mixer class."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import Mixer, MixerState
from ordinate.schemes._scheme import Scheme
from ordinate.schemes._spec import SchemeSpec
from ordinate.schemes.none import NoPosition
from ordinate.testing.case import SIZES, WIDTH, with_noise
from ordinate.testing.check import Check, InapplicableError, Outcome, makes_tensors_on_a_gpu, run_check

_FOLDER = "ordinate.testing.mixers"


@dataclass(frozen=True)
class MixerCase:
    """A mixer class with options, and deterministic fixtures to test it: all seeds are fixed.

    Args:
        kind: mixer class.
        options: constructor options besides the sizes.
    """

    kind: type[Mixer[Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def mixer(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Mixer[Any]:
        """Build an instance in evaluation mode, with noise added to its parameters.

        A mixer whose output projection is initialised with zeros would pass many checks trivially.
        """
        sizes = {**SIZES, "layer": 1}
        mixer = with_noise(lambda: self.kind(**catalog.bind(self.kind, self.options, sizes)), seed)
        return mixer.to(dtype).eval()

    def scheme(self) -> Scheme:
        """Build the default scheme of the mixer."""
        return SchemeSpec(self.kind.default_scheme).build(SIZES).schemes[0]

    def tokens(self, batch: int, count: int, dtype: torch.dtype = torch.float64) -> Tokens:
        """Random token vectors."""
        generator = torch.Generator().manual_seed(2)
        # the same numbers on every device
        drawn = torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64, device="cpu")
        return drawn.to(torch.get_default_device(), dtype)

    def output(self, x: Tokens, where: Geometry, mixer: Mixer[Any] | None = None) -> Tokens:
        """Output of the mixer at a geometry with its default scheme."""
        return (mixer or self.mixer(x.dtype))(x, self.scheme().at(where))[0]

    def output_without_positions(self, x: Tokens) -> Tokens:
        """Output of the bidirectional form without positions."""
        return self.mixer(x.dtype)(x, NoPosition().at(Geometry.full(x.shape[1])))[0]

    def output_in_chunks(self, x: Tokens, wheres: list[Geometry]) -> Tokens:
        """Output of decoding in chunks, each at its own geometry, whose keys include the previous chunks."""
        mixer, scheme = self.mixer(x.dtype), self.scheme()
        outs: list[Tensor] = []
        state: MixerState | None = None
        for piece, where in zip(x.split([where.shape[0] for where in wheres], 1), wheres, strict=True):
            out, state = mixer(piece, scheme.at(where), state)
            outs.append(out)
        return torch.cat(outs, 1)

    def geometries(self, tokens: int) -> list[Geometry]:
        """Geometries of the forms that it has: causal, bidirectional, or both."""
        forms = {Geometry.causal: self.kind.causal, Geometry.full: self.kind.bidirectional}
        return [build(tokens) for build, has in forms.items() if has]

    def not_looked_for(self) -> bool:
        """Whether NaN of hidden tokens may reach others: on a GPU by PyTorch's attention, which mixers of encoded
        queries use.
        """
        return makes_tensors_on_a_gpu() and "encode_query" in self.kind.supported_hooks

    def skip_unless(self, holds: bool, reason: str) -> None:
        """Skip the check with this reason unless the condition holds."""
        if not holds:
            raise InapplicableError(reason)


def mixer_checks() -> list[Check[MixerCase]]:
    """All contract tests of mixers: the public functions of all files of `testing/mixers/`."""
    modules = [import_module(f"{_FOLDER}.{name}") for name in catalog.names(_FOLDER)]
    return [
        Check(name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def check_mixer(kind: type[Mixer[Any]], **options: Any) -> list[Outcome]:
    """Run all contract tests on a mixer class.

    Constructor arguments named like model sizes (width, heads, max_length ...) are bound automatically.

    Args:
        kind: mixer class.
        options: further constructor options.

    Raises:
        ValueError: an unknown option, or a required argument that is neither a size nor given.
    """
    case = MixerCase(kind, options)
    case.mixer()
    return [run_check(check, case) for check in mixer_checks()]
