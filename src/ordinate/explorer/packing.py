"""Models as the page reads them: a description of each, and the numbers of all in one stretch of bytes."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from ordinate.core.atomic_files import write_bytes

SCALES = ".scales"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class PackedModel:
    """A model without torch.

    Args:
        facts: name, kind, sizes, scheme and its options, as `core/model.js` reads them.
        arrays: by the name of its parameter, int8 with the scales beside it (`NAME.scales`), or float32.
    """

    facts: Mapping[str, Any]
    arrays: Arrays

    @property
    def name(self) -> str:
        """Name in the page."""
        return str(self.facts["name"])


def save_models(path: Path, models: Sequence[PackedModel]) -> None:
    """Write models to a safetensors file."""
    arrays = {f"{model.name}/{name}": array for model in models for name, array in model.arrays.items()}
    facts = json.dumps([dict(model.facts) for model in models], sort_keys=True)
    write_bytes(path, save(arrays, metadata={"models": facts}))


def load_models(path: Path) -> list[PackedModel]:
    """Read models from a file of `save_models`."""
    # pyrefly: ignore[bad-context-manager]
    with safe_open(path, framework="numpy") as file:
        facts = json.loads(file.metadata()["models"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    found = []
    for entry in facts:
        start = f"{entry['name']}/"
        own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        found.append(PackedModel(entry, own))
    return found


def pack(models: Sequence[PackedModel]) -> tuple[list[dict[str, Any]], str]:
    """Return the list of models with the place of each array, and all bytes, deflated, in base64."""
    entries, stretches, place = [], [], 0
    for model in models:
        tensors = []
        for name, array in sorted(model.arrays.items()):
            if name.endswith(SCALES):
                continue
            parts = [array] if array.dtype != np.int8 else [model.arrays[name + SCALES], array]
            content = b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in parts)
            rows, columns = array.shape if array.ndim == 2 else (1, array.size)
            tensors.append({"name": name, "rows": rows, "columns": columns, "kind": array.dtype.name, "at": place})
            stretches.append(content)
            place += len(content)
        entries.append({**model.facts, "tensors": tensors})
    packed = zlib.compress(b"".join(stretches), 9)
    return entries, base64.b64encode(packed).decode()
