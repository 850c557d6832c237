"""How fast each pair of channels turns in a rotation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from torch import Tensor

from ordinate import catalog
from ordinate.checks import need, need_known

_FOLDER = "ordinate.spectra"
# what transformers keeps beside a spectrum in the same dictionary
_BESIDE = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """The rates of the pairs of a rotation; this one is the plain one, its members stretch it for longer texts.

        rate(m) = theta^(-2m / width),   m = 0 .. width/2 - 1        [radians a token]

    Must: be a frozen dataclass of plain numbers; override `rates`.
    May: set `magnitude`; where the rates depend on how long the text is, set `breaks` and override `rates_at`.
    """

    rope_type: ClassVar[str] = "default"
    """What transformers calls it."""
    fields: ClassVar[Mapping[str, str]] = {}
    """The names of its numbers in a dictionary of transformers, and here."""

    @property
    def magnitude(self) -> float:
        """Multiplies what turns, queries and keys alike, so that q.k is multiplied by its square."""
        return 1.0

    @property
    def breaks(self) -> tuple[int, ...] | None:
        """The lengths beyond which other rates hold [tokens]; None: every token changes them; (): they are fixed."""
        return ()

    def rates(self, width: int, theta: float) -> list[float]:
        """The rate of each pair of `width` channels, where no length says otherwise [radians a token]."""
        return [theta ** (-2 * m / width) for m in range(width // 2)]

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        """The rates where this many tokens were read, in float64."""
        fixed = torch.tensor(self.rates(width, theta), dtype=torch.float64, device=length.device)
        return fixed.expand(*length.shape, -1)

    @classmethod
    def read(cls, given: "Spectrum | str | Mapping[str, Any]") -> "Spectrum":
        """The spectrum that a text or a dictionary describes: "linear", {"name": "linear", "factor": 4}.

        Raises:
            ValueError: an unknown name or number, or a value that is no number.
        """
        if isinstance(given, Spectrum):
            return given
        numbers = dict(given) if isinstance(given, Mapping) else {"name": given}
        named = isinstance(numbers.get("name"), str)
        need(named, "a spectrum is named", f"got {given!r}", "give its name (ordinate list spectra)")
        kind = catalog.load(_FOLDER, Spectrum, numbers.pop("name"))
        return kind(**catalog.bind(kind, numbers, {}))

    @classmethod
    def of(cls, parameters: Mapping[str, Any], *, max_length: int | None = None) -> "Spectrum":
        """The spectrum in a `rope_parameters` (once `rope_scaling`) dictionary of transformers.

        Args:
            parameters: the dictionary, as in a model's config.json; null means left out.
            max_length: the model's `max_position_embeddings`, where the dictionary leaves a length out [tokens].

        Raises:
            ValueError: an unknown rope_type or key, or a missing number.
        """
        nested = [name for name, value in parameters.items() if isinstance(value, Mapping)]
        came = f"got {', '.join(nested)}"
        need(not nested, "rope_parameters belong to one type of layer", came, "give one of them")
        parameters = {key: value for key, value in parameters.items() if value is not None}
        name = parameters.get("rope_type", parameters.get("type", cls.rope_type))
        kinds = {kind.rope_type: kind for kind in (Spectrum, *_members())}
        need_known("rope_type", name, kinds)
        kind = kinds[name]
        for key in parameters:
            need_known(f"number of rope_type {name!r}", key, {*kind.fields, *_BESIDE})
        numbers = {own: parameters[key] for key, own in kind.fields.items() if key in parameters}
        return kind(**catalog.bind(kind, kind.complete(numbers, max_length), {}))

    @classmethod
    def complete(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """These numbers as transformers reads them: with those it takes from the longest input, without the idle."""
        wanted = "trained_length" in catalog.options(cls) and max_length is not None
        return {"trained_length": max_length} | numbers if wanted else numbers

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # so that an option of this type can be written in a study, on the command line, and in a file
        return core_schema.no_info_plain_validator_function(cls.read)


def _members() -> list[type[Spectrum]]:
    return [
        kind
        for name in catalog.names(_FOLDER)
        if (kind := catalog.load(_FOLDER, Spectrum, name)).rope_type != Spectrum.rope_type
    ]
