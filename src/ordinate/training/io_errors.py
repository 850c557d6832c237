"""Uniform error messages for failed writes."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def explain_write_errors(what: str, path: Path) -> Iterator[None]:
    """Turn write errors into an OSError that names what could not be written, the cause and the remedy.

    Raises:
        OSError: the disk is full or not writable.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = _number(error)
        remedy = "free space" if code in DISK_FULL_ERRNOS else f"make {path.parent} writable"
        message = f"cannot write {what} ({error}); {remedy} and run the same command again"
        raise OSError(code, message, str(path)) from error


def _number(error: OSError | SafetensorError) -> int:
    """Return the errno of an error; safetensors gives it only in the message text."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else errno.EIO
