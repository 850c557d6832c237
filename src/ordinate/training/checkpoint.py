"""Atomic training checkpoints in safetensors and JSON."""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ordinate.core.atomic_files import sync_folder
from ordinate.training.io_errors import explain_write_errors

FORMAT = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
PARTIAL = ".partial-"


class CorruptCheckpointError(ValueError):
    """A checkpoint is incomplete or corrupt."""


class CorruptCheckpointWarning(UserWarning):
    """A corrupt checkpoint was skipped."""


def write_checkpoint(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, as a folder of safetensors and JSON, without pickle.

    Files are written to a hidden folder and fsynced, the manifest with sizes and hashes last; then the folder is
    renamed. A checkpoint is therefore either complete or absent, even if the process is killed while writing.

    Raises:
        OSError: the disk is full or not writable; older checkpoints are unaffected.
        TypeError: a value is neither a tensor nor plain data.
    """
    partial = path.with_name(PARTIAL + path.name)
    tensors: dict[str, torch.Tensor] = {}
    state = _encode(dict(checkpoint), "checkpoint", tensors)
    try:
        with explain_write_errors("a checkpoint", path):
            _write(partial, tensors, state)
            _put(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_checkpoint(path: Path) -> Any:
    """Read a checkpoint after verifying its manifest.

    Raises:
        CorruptCheckpointError: a file is missing or does not match the manifest.
    """
    verify_checkpoint(path)
    try:
        tensors = load_file(path / TENSORS, device="cpu")
        state = json.loads((path / STATE).read_text(encoding="utf-8"), object_pairs_hook=_unique)
        return _decode(state, tensors)
    except (SafetensorError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptCheckpointError(f"{path} cannot be read: {error}") from None


def verify_checkpoint(path: Path) -> None:
    """Raise a CorruptCheckpointError unless every file matches the sizes and hashes of its manifest."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        for name in (TENSORS, STATE):
            if _describe(path / name) != manifest["files"][name]:
                raise CorruptCheckpointError(f"{path / name} does not match its checksum")
        if manifest["format"] != FORMAT:
            raise CorruptCheckpointError(f"{path} has format {manifest['format']}, this version reads {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CorruptCheckpointError):
            raise
        raise CorruptCheckpointError(f"{path} is incomplete: {error}") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints of a folder, valid or not, oldest first."""
    named = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(named, key=step_of)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of this step."""
    return folder / f"step-{step:08d}"


def checkpoint_bytes(parameters: int) -> int:
    """Return the size of a checkpoint of a model: its weights and two moments of AdamW in float32 [bytes].

    Args:
        parameters: number of the model's parameters.
    """
    return 3 * 4 * parameters


def need_space(folder: Path, parameters: int, steps: Sequence[int]) -> None:
    """Raise an OSError unless the checkpoints to keep fit on the disk, before any step is taken.

    Args:
        folder: folder of the checkpoints.
        parameters: number of the model's parameters.
        steps: the steps whose checkpoints are kept.
    """
    missing = [step for step in steps if not checkpoint_path(folder, step).exists()]
    needed, free = len(missing) * checkpoint_bytes(parameters), shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"the checkpoints to keep must fit on the disk of {folder}; {len(missing)} need {needed / 1e6:,.0f} MB "
            f"of {free / 1e6:,.0f} MB free; keep fewer"
        )


def step_of(path: Path) -> int:
    """Return the step of a checkpoint path."""
    return int(path.name.removeprefix("step-"))


def latest_valid_checkpoint(folder: Path) -> Path | None:
    """Return the newest valid checkpoint of a folder, with a warning for each newer corrupt one.

    Raises:
        CorruptCheckpointError: there are checkpoints, but all are corrupt.
    """
    reasons: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            read_checkpoint(path)
        except CorruptCheckpointError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(
                f"{reason}; resuming from the previous checkpoint, {path.name}",
                CorruptCheckpointWarning,
                stacklevel=2,
            )
        return path
    if reasons:
        listed = "\n  ".join(reasons)
        raise CorruptCheckpointError(
            f"resuming needs a valid checkpoint; all in {folder} are corrupt:\n  {listed}\n"
            "delete the folder to start again"
        )
    return None


def remove_partial(folder: Path) -> None:
    """Delete partial checkpoints left by processes that were killed while writing."""
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
    """Rename a written folder to its final name; an existing checkpoint of that name is restored if this fails."""
    if not path.exists():
        os.replace(partial, path)
    else:
        # a non-empty folder cannot be replaced by rename, so the old one is renamed first
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
        # keys such as 1 and "1" give the same name
        while place in tensors:
            place += "'"
        # copied because safetensors refuses tensors that share memory, such as tied weights
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
        f"checkpoint values must be dense tensors or plain data; {place} is a {type(value).__name__}; leave it out"
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from JSON pairs, refusing duplicate keys."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
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
