"""The contract of quantised formats: which tensors of a checkpoint are packed, and what numbers they stand for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known, shown
from ordinate.pretrained.checkpoint_files import CheckpointTensors

FIELD = "quantization_config"
"""The key of config.json."""
AGAIN = "download the checkpoint again"
ORIGINAL = "load the original checkpoint, or save it again after model.dequantize() in transformers"


@dataclass(frozen=True)
class PackedWeight(ABC):
    """One weight that several tensors of a checkpoint stand for.

    Must: `read`.
    May: `departure`.

    Args:
        parts: names of the stored tensors.
        shape: shape of the weight, known from the header of the files.
    """

    parts: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def departure(self) -> str:
        """Why transformers cannot dequantise it, or makes other numbers of it; "": it makes the same."""
        return ""

    @abstractmethod
    def read(self, stored: CheckpointTensors) -> Float[Tensor, "..."]:
        """Return the weight in float32.

        Raises:
            ValueError: a part has numbers that the format does not have; the message names it.
        """


class Quantisation(ABC):
    """A format of quantised weights.

    Must: `fields` and `packed`.
    May: `check` (the values of the fields), `skipped` and `activations`.

    Args:
        config: the `quantization_config` of config.json.

    Raises:
        ValueError: a field that the format does not have, or whose value is not supported.
    """

    fields: ClassVar[frozenset[str]]
    """Keys of its `quantization_config`; others are refused."""
    skipped: ClassVar[tuple[str, ...]] = ("modules_to_not_convert",)
    """Keys of the list of modules whose weights are not quantised."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        for name in config:
            need_known(f"field of the {FIELD} of {config['quant_method']}", name, self.fields)
        self.config = config
        for name in self.skipped:
            came, must = config.get(name), f"{name} in {FIELD} must be a list of names"
            listed = isinstance(came, list) and all(isinstance(one, str) for one in came)
            need(came is None or listed, must, f"got {shown(came)}", AGAIN)
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raise a ValueError if a field has a value that is not supported."""

    @property
    def activations(self) -> str:
        """How activations are quantised, in the terms of the format, which is not done here; "": not at all."""
        return ""

    @abstractmethod
    def packed(self, stored: CheckpointTensors) -> Mapping[str, PackedWeight]:
        """Return the packed weights of a checkpoint by their names; only headers are read.

        Raises:
            ValueError: a part is missing, or has another shape or type.
        """

    def unused(self, name: str) -> bool:
        """Whether a stored tensor beside those of the weights is of the quantised activations."""
        return False

    def need_field(self, name: str, allowed: Sequence[Any]) -> None:
        """Raise a ValueError unless a field is left out or has one of these values."""
        came = self.config.get(name, allowed[0])
        # true is no 1
        fits = any(came == one and type(came) is type(one) for one in allowed)
        must = f"{name} in {FIELD} must be {' or '.join(map(repr, allowed))}"
        need(fits, must, f"got {shown(came)}", ORIGINAL)


def need_shape(stored: CheckpointTensors, name: str, wanted: tuple[int, ...], of: str) -> None:
    """Raise a ValueError unless a stored tensor is there and has this shape."""
    need(name in stored, f"the quantised {of} needs its {name.rpartition('.')[2]}", f"there is no {name}", AGAIN)
    came = stored.shape(name)
    need(
        came == wanted, f"{name} must have shape {wanted}, for {of} of shape {stored.shape(of)}", f"got {came}", AGAIN
    )


def need_scales(name: str, scales: Float[Tensor, "..."]) -> None:
    """Raise a ValueError unless scales are finite and not below zero."""
    holds = bool((scales.isfinite() & (scales >= 0)).all())
    need(holds, "scales of quantised weights must be finite and not below zero", f"{name} has others", AGAIN)


def power_of_two(codes: Tensor) -> Float[Tensor, "..."]:
    """Return the scales of codes of E8M0, which are exponents: 2^(code - 127), and NaN for 255.

    Source: Open Compute Project 2023, OCP Microscaling Formats (MX) Specification, version 1.0, section 5.4.1.
    """
    table = [2.0 ** (code - 127) for code in range(255)] + [float("nan")]
    return torch.tensor(table)[codes.view(torch.uint8).int()]
