"""One clear error for whatever cannot be written."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Say what could not be written, why, and what to do about it.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = _number(error)
        remedy = "free space" if code in FULL else f"make {path.parent} writable"
        message = f"cannot write {what} ({error}); {remedy} and run the same command again"
        raise OSError(code, message, str(path)) from error


def _number(error: OSError | SafetensorError) -> int:
    """The system's number of an error, which safetensors tells in words only."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    told = re.search(r"os error (\d+)", str(error))
    return int(told[1]) if told else errno.EIO
