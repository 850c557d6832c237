"""RoPE frequencies and frequency scaling for longer contexts: the base class, which is the unscaled spectrum."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.checks import need, need_known
from ordinate.core.devices import numbers_beside

RatesBy = Literal["query", "sequence"]
"""Whose length sets the rates."""
_FOLDER = "ordinate.schemes.spectra"
# keys of the same dictionary in transformers that do not describe the frequency scaling
_BESIDE = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """RoPE angular frequencies (rates) of the channel pairs. Subclasses scale them for longer contexts.

        rate(m) = theta^(-2m / width),   m = 0 .. ceil(width/2) - 1        [radians per token]

    Must: be a frozen dataclass of plain numbers; override `rates`.
    May: set `query_key_scale`; where the rates depend on how long the text is, set `length_thresholds`, override
    `rates_at` and offer `whole_sequence`.
    """

    rope_type: ClassVar[str] = "default"
    """The `rope_type` of transformers."""
    hf_fields: ClassVar[Mapping[str, str]] = {}
    """Keys of a `rope_parameters` dictionary of transformers, mapped to the field names here."""

    @property
    def query_key_scale(self) -> float:
        """Attention factor: multiplies the rotated queries and keys, so q.k is multiplied by its square."""
        return 1.0

    @property
    def length_thresholds(self) -> tuple[int, ...] | None:
        """Lengths beyond which the rates change [tokens]; (): they are constant; None: each length has its own."""
        return ()

    @property
    def whole_sequence(self) -> bool:
        """Whether one length, that of the longest sequence, sets the rates of a call; else each query's own does."""
        return False

    def rates(self, width: int, theta: float) -> list[float]:
        """Return the rate of each pair of `width` channels, at short lengths if they matter [radians per token]."""
        return [theta ** (-2 * m / width) for m in range((width + 1) // 2)]

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        """Return the rates at a sequence length, in float64."""
        fixed = numbers_beside(length, self.rates(width, theta), torch.float64)
        return fixed.expand(*length.shape, -1)

    @classmethod
    def parse(cls, given: object) -> "Spectrum":
        """Build a spectrum from its name or a dictionary, such as {"name": "linear", "factor": 4}.

        Raises:
            ValueError: an unknown name or field, or a value that is not a number.
        """
        if isinstance(given, Spectrum):
            return given
        numbers = dict(given) if isinstance(given, Mapping) else {"name": given}
        named = isinstance(numbers.get("name"), str)
        need(named, "a spectrum is given by its name", f"got {given!r}", "see ordinate list spectra")
        kind = catalog.load(_FOLDER, Spectrum, numbers.pop("name"))
        return kind(**catalog.bind(kind, numbers, {}))

    def as_options(self) -> dict[str, Any]:
        """Return what `parse` reads: the name, and the numbers that are not the defaults."""
        name = type(self).__module__.rpartition(".")[2]
        own = name if name in catalog.own_names(_FOLDER) else f"{type(self).__module__}:{type(self).__name__}"
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}
        usual = {field.name: field.default for field in fields(self)}
        return {"name": own} | {key: value for key, value in numbers.items() if value != usual[key]}

    @classmethod
    def from_rope_parameters(cls, parameters: Mapping[str, Any], *, max_length: int | None = None) -> "Spectrum":
        """Build the spectrum of a `rope_parameters` (formerly `rope_scaling`) dictionary of transformers.

        Args:
            parameters: the dictionary, as in a model's config.json; null values count as missing.
            max_length: the model's `max_position_embeddings`, used for a length missing in the dictionary [tokens].

        Raises:
            ValueError: an unknown rope_type or key, or a missing field.
        """
        nested = [name for name, value in parameters.items() if isinstance(value, Mapping)]
        came = f"got {', '.join(nested)}"
        need(not nested, "rope_parameters must describe one layer type", came, "give the dictionary of one of them")
        parameters = {key: value for key, value in parameters.items() if value is not None}
        name = parameters.get("rope_type", parameters.get("type", cls.rope_type))
        kind = cls.of_rope_type(name)
        for key in parameters:
            need_known(f"field of rope_type {name!r}", key, {*kind.hf_fields, *_BESIDE})
        numbers = {own: parameters[key] for key, own in kind.hf_fields.items() if key in parameters}
        return kind(**catalog.bind(kind, kind.fill_missing(numbers, max_length), {}))

    @classmethod
    def of_rope_type(cls, name: str) -> "type[Spectrum]":
        """Return the class for a `rope_type` of transformers.

        Raises:
            ValueError: an unknown one.
        """
        kinds = _by_rope_type(catalog.own_names(_FOLDER))
        if name not in kinds:
            # searching the installed packages takes longer than all the rest
            kinds = _by_rope_type(catalog.names(_FOLDER))
        need_known("rope_type", name, kinds)
        return kinds[name]

    @classmethod
    def fill_missing(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """Fill in missing fields from `max_length` and drop ignored ones, as transformers does."""
        wanted = "trained_length" in catalog.options(cls) and max_length is not None
        return {"trained_length": max_length} | numbers if wanted else numbers


def _by_rope_type(names: Iterable[str]) -> dict[str, type[Spectrum]]:
    members = {kind.rope_type: kind for kind in (catalog.load(_FOLDER, Spectrum, name) for name in names)}
    # a member that transformers does not know has the rope_type of the base class
    return members | {Spectrum.rope_type: Spectrum}
