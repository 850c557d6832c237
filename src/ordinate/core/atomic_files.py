"""Atomic file writes, and JSON files with a checksum."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# end of the name of a temporary file
PARTIAL = ".partial"
# first key of a checksummed file: the SHA-256 of all text after it
CHECKSUM = re.compile(r'\{\n "checksum": "(.{64})"')


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: readers see the old or the new file, never a part, even after power loss.

    It goes to a temporary file in the same folder (so that the rename stays on one file system), is flushed to disk,
    and then replaces `path`.
    """
    # a link stays one
    path = path.resolve()
    try:
        # not all of a long name, which would then be too long
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:20]}.", suffix=PARTIAL)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~current_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        # a full disk is reported without a name, other failures under that of the temporary file
        error.filename = str(path)
        raise
    sync_folder(path.parent)


def unfinished_files(folder: Path) -> list[Path]:
    """Return the temporary files in a folder that processes killed in `write_text` have left."""
    return [path for path in folder.glob(f".*{PARTIAL}") if path.is_file()]


def current_umask() -> int:
    """Return the permissions that the user withholds from new files; a temporary file has none of others at first."""
    # without reading the status of this process, it can only be read by changing it, for all threads at once
    status = Path("/proc/self/status")
    found = re.search(r"^Umask:\s*([0-7]+)", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1], 8) if found else 0o022


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as JSON, atomically; NaN and infinity raise a ValueError."""
    write_text(path, _json(value))


def write_checksummed(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` to `path` as JSON with a SHA-256 of its content, checked by `read_checksummed`."""
    write_text(path, checksummed_text(value))


def checksummed_text(value: Mapping[str, Any]) -> str:
    """Return `value` as JSON that starts with a SHA-256 of what follows."""
    start, _, rest = _json({"checksum": "", **value}).partition('""')
    return f'{start}"{_hash(rest)}"{rest}'


def decode_json(text: str) -> Any:
    """Decode JSON; NaN and infinity raise a ValueError."""
    return json.loads(text, parse_constant=_refuse)


def read_checksummed(
    path: Path, remedy: str = "restore it from a backup", decode: Callable[[str], Any] = decode_json
) -> dict[str, Any]:
    """Read a JSON object written by `write_checksummed`.

    The checksum detects damage, not forgery: a user who can write the file can also write its checksum.

    Args:
        path: the file.
        remedy: what the user can do about a file that is refused, for the message.
        decode: decodes the JSON text.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: the file has no checksum, or another content than when it was written.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"a file must match its checksum; {path} is not even text; {remedy}") from None
    found = CHECKSUM.match(text)
    if found is None:
        raise ValueError(
            f"a file must start with the checksum of its content; {path} does not, so it may be damaged; {remedy}"
        )
    if _hash(text[found.end() :]) != found[1]:
        raise ValueError(f"a file must match its checksum; {path} does not, so it was changed or damaged; {remedy}")
    value = decode(text)
    del value["checksum"]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def sync_folder(folder: Path) -> None:
    """Flush directory entries (new and renamed files) to disk, on systems that support it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
