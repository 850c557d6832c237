"""Checkpoints that are whole or invisible, in files that hold data only."""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ordinate.files import sync_folder
from ordinate.training.disk import writing

FORMAT = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
PARTIAL = ".partial-"


class DamagedError(ValueError):
    """A checkpoint that is not whole."""


class DamagedWarning(UserWarning):
    """A checkpoint was passed over because it is not whole."""


class PlainCheckpoints(CheckpointIO):
    """Lightning's checkpoints as a folder of safetensors and JSON: nothing in it can run code.

    Files are written into a hidden folder and made safe on disk, the manifest with their sizes and hashes last; then
    the folder gets its name. Whatever instant the process dies at, a checkpoint is there whole or not at all.
    """

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint.

        Raises:
            OSError: the disk is full or cannot be written; older checkpoints are untouched.
            TypeError: something that is neither a tensor nor plain data.
        """
        path = Path(path)
        partial = path.with_name(PARTIAL + path.name)
        tensors: dict[str, torch.Tensor] = {}
        state = _encode(dict(checkpoint), "checkpoint", tensors)
        try:
            with writing("a checkpoint", path):
                _write(partial, tensors, state)
                _put(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> Any:
        """Read a checkpoint, checking that it is whole.

        Raises:
            DamagedError: a file is missing, or not what the manifest says.
        """
        path = Path(path)
        check_whole(path)
        try:
            tensors = load_file(path / TENSORS, device="cpu")
            state = json.loads((path / STATE).read_text(encoding="utf-8"), object_pairs_hook=_unique)
            return _decode(state, tensors)
        except (SafetensorError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise DamagedError(f"{path} cannot be read: {error}") from None

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint."""
        shutil.rmtree(path, ignore_errors=True)


def check_whole(path: Path) -> None:
    """Raise a DamagedError unless every file of the checkpoint is what its manifest says."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        for name in (TENSORS, STATE):
            if _describe(path / name) != manifest["files"][name]:
                raise DamagedError(f"{path / name} is not what was written")
        if manifest["format"] != FORMAT:
            raise DamagedError(f"{path} has format {manifest['format']}, this version reads {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{path} is not whole: {error}") from None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, whole or not, oldest first."""
    named = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(named, key=step_of)


def checkpoint_at(folder: Path, step: int) -> Path:
    """The checkpoint that is made after this step."""
    return folder / f"step-{step:08d}"


def step_of(path: Path) -> int:
    """After which step a checkpoint was made."""
    return int(path.name.removeprefix("step-"))


def newest_whole(folder: Path) -> Path | None:
    """The newest whole checkpoint of a folder, with a warning for each newer one that is damaged.

    Raises:
        DamagedError: there are checkpoints, and every one is damaged.
    """
    reasons: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            PlainCheckpoints().load_checkpoint(path)
        except DamagedError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(f"{reason}; going on from the one before, {path.name}", DamagedWarning, stacklevel=2)
        return path
    if reasons:
        listed = "\n  ".join(reasons)
        raise DamagedError(
            f"a run goes on from a whole checkpoint; none in {folder} is:\n  {listed}\n"
            "delete the folder to begin again"
        )
    return None


def remove_partial(folder: Path) -> None:
    """Delete what processes left that died while writing."""
    for path in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _write(partial: Path, tensors: dict[str, torch.Tensor], state: Any) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(tensors, partial / TENSORS)
    (partial / STATE).write_text(json.dumps(state), encoding="utf-8")
    for name in (TENSORS, STATE):
        _sync(partial / name)
    files = {name: _describe(partial / name) for name in (TENSORS, STATE)}
    (partial / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": files}), encoding="utf-8")
    _sync(partial / MANIFEST)
    sync_folder(partial)


def _put(partial: Path, path: Path) -> None:
    """Give a written folder its name; whatever had the name keeps it should that fail."""
    if not path.exists():
        os.replace(partial, path)
    else:
        before = path.with_name(f"{PARTIAL}before-{path.name}")
        shutil.rmtree(before, ignore_errors=True)
        os.replace(path, before)
        try:
            os.replace(partial, path)
        except OSError:
            os.replace(before, path)
            raise
        shutil.rmtree(before, ignore_errors=True)
    sync_folder(path.parent)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _encode(value: Any, place: str, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        # keys such as 1 and "1" give the same place
        while place in tensors:
            place += "'"
        # a copy: safetensors refuses tensors that share memory, as tied weights do
        tensors[place] = value.detach().cpu().contiguous().clone()
        return {"$tensor": place}
    if isinstance(value, list):
        return [_encode(item, f"{place}/{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, f"{place}/{index}", tensors) for index, item in enumerate(value)]}
    if isinstance(value, Mapping):
        items = [
            [_encode(key, place, tensors), _encode(item, f"{place}/{key}", tensors)] for key, item in value.items()
        ]
        return {"$items": items}
    raise TypeError(
        f"a checkpoint holds dense tensors and plain data; {place} is a {type(value).__name__}; leave it out"
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What a JSON object holds, each key once."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _decode(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors[value["$tensor"]]
    if "$tuple" in value:
        return tuple(_decode(item, tensors) for item in value["$tuple"])
    return {_decode(key, tensors): _decode(item, tensors) for key, item in value["$items"]}
