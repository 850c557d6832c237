"""The tensors of a checkpoint with their packed weights as numbers, one at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.pretrained._quantisation import AGAIN, FIELD, ORIGINAL, PackedWeight, Quantisation
from ordinate.pretrained.checkpoint_files import CONFIG, CheckpointTensors, SizedTensors

_FOLDER = "ordinate.pretrained.quantisations"
NARROW = ("F8_", "F6_", "F4")
"""Beginnings of the names of types, by safetensors, that only quantised weights have."""
BLOCKS = ("_blocks", "_scales")
"""Ends of names of bytes that only quantised weights have."""


class QuantisedTensors(SizedTensors):
    """Mapping from name to tensor in which packed weights are numbers in float32.

    A weight is dequantised whenever it is read, and none is kept.

    Args:
        stored: the tensors of the files.
        quantisation: their format.

    Raises:
        ValueError: no weight is packed, parts that do not fit together, or a packed weight of a module that
            config.json lists as one without.
    """

    default_dtype = torch.float32

    def __init__(self, stored: CheckpointTensors, quantisation: Quantisation) -> None:
        self.stored, self.packed = stored, quantisation.packed(stored)
        self.activations = quantisation.activations
        method = quantisation.config["quant_method"]
        must = f"a checkpoint with quant_method {method} in {CONFIG} must have quantised weights"
        need(bool(self.packed), must, "got none of this format", f"remove {FIELD}, or download the weights again")
        both = [name for name in self.packed if name in stored and name not in self.packed[name].parts]
        need(not both, "a weight must be stored once", f"{both[:1]} is there quantised and unquantised", AGAIN)
        _need_convertible(self.packed, quantisation)
        parts = {part for weight in self.packed.values() for part in weight.parts}
        plain = [name for name in stored if name not in parts and not quantisation.unused(name)]
        self._names = dict.fromkeys([*plain, *self.packed])

    @property
    def departures(self) -> list[str]:
        """The weights that transformers cannot dequantise, or of which it makes other numbers, and why."""
        return [f"{name}, {weight.departure}" for name, weight in self.packed.items() if weight.departure]

    def __getitem__(self, name: str) -> Tensor:
        return self.packed[name].read(self.stored) if name in self.packed else self.stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        # without it, a weight would be dequantised to see whether it is there
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self.packed[name].shape if name in self.packed else self.stored.shape(name)


def open_tensors(folder: Path, config: Mapping[str, Any]) -> CheckpointTensors | QuantisedTensors:
    """Open the files of a checkpoint; only their headers are read.

    Args:
        folder: the checkpoint.
        config: the contents of its config.json.

    Raises:
        ValueError: a format of quantised weights that is not supported, a field of it that is not, damaged files, or
            quantised weights without a `quantization_config`.
    """
    given = config.get(FIELD)
    quantisation = None if given is None else _quantisation(given)
    stored = CheckpointTensors(folder)
    if quantisation is not None:
        return QuantisedTensors(stored, quantisation)
    for name in stored:
        kind = stored.dtype(name)
        plain = not kind.startswith(NARROW) and not (kind == "U8" and name.endswith(BLOCKS))
        must = f"quantised weights need a {FIELD} in {CONFIG}, which says how to read them"
        need(plain, must, f"there is none for {name}, of {kind}", "download config.json again")
    return stored


def need_same_dequantised(tensors: SizedTensors) -> None:
    """Raise a ValueError unless transformers makes the same numbers of packed weights with `dequantize=True`."""
    told = tensors.departures[:1] if isinstance(tensors, QuantisedTensors) else []
    must = "transformers must make the same numbers of quantised weights"
    remedy = "load the model by ordinate.load, save it by ordinate.save, and use that folder"
    need(not told, must, f"got {''.join(told)}", remedy)


def _quantisation(given: Any) -> Quantisation:
    must = f"{FIELD} in {CONFIG} must be an object with a quant_method"
    method = given.get("quant_method") if isinstance(given, dict) else None
    need(isinstance(method, str), must, f"got {shown(given)}", AGAIN)
    known, name = catalog.names(_FOLDER), str(method).replace("-", "_")
    must = f"quantised weights are read with a quant_method of {', '.join(known).replace('_', '-')}"
    need(name in known, must, f"got {shown(method)}", ORIGINAL)
    return catalog.load(_FOLDER, Quantisation, name)(given)


def _need_convertible(packed: Mapping[str, PackedWeight], quantisation: Quantisation) -> None:
    """Raise a ValueError if a packed weight is one of a module that is listed as one without.

    A name lists the module and all inside it; * stands for one part of a name. Regular expressions are not run.
    """
    listed = {
        tuple(one.split(".")): key for key in quantisation.skipped for one in quantisation.config.get(key) or ()
    }
    for name in packed:
        parts = tuple(name.split("."))
        for module, key in listed.items():
            # zip ends with the shorter one, which must be the module
            inside = len(module) <= len(parts) and all(
                mine in (there, "*") for mine, there in zip(module, parts, strict=False)
            )
            must = f"a module that {key} lists must not have quantised weights"
            need(not inside, must, f"{'.'.join(module)} is listed, and {name} is quantised", AGAIN)
