"""Write a file whole or not at all."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# the first key of a sealed file: the hash of all that follows
SEAL = re.compile(r'\{\n "checksum": "(.{64})"')


def write_text(path: Path, text: str) -> None:
    """Put `text` at `path` so that a reader sees the old file or the new one, never a part, even after power loss."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Put `value` at `path` as JSON, whole or not at all; a number that is not finite is refused."""
    write_text(path, _json(value))


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Put `value` at `path` as JSON with a hash of itself, so that `read_sealed` notices a bit that has flipped."""
    start, _, rest = _json({"checksum": "", **value}).partition('""')
    write_text(path, f'{start}"{_hash(rest)}"{rest}')


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` put there; a file without a hash is read as it is.

    Raises:
        OSError: no file, or none that can be read.
        ValueError: it is not as it was written, or no JSON object.
    """
    text = path.read_text(encoding="utf-8")
    sealed = SEAL.match(text)
    if sealed and _hash(text[sealed.end() :]) != sealed[1]:
        raise ValueError(f"a file is as it was written; {path} is not, by its checksum; put it back from a copy")
    value = json.loads(text, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError(f"such a file holds a JSON object; {path} holds none; put it back from a copy")
    if sealed:
        del value["checksum"]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def sync_folder(folder: Path) -> None:
    """Make the names in this folder survive power loss, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
