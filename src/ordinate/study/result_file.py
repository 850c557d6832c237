"""The result file of a run: the one function that reads it, and refuses what is damaged or belongs to another run."""

from pathlib import Path
from typing import Any

from pydantic_core import from_json

from ordinate.core.atomic_files import decode_json, read_checksummed
from ordinate.core.checks import need
from ordinate.study.run import STATES

FORMAT_VERSION = 2
# format 2 added mixers and tasks
READABLE_FORMATS = (1, 2)
REMEDY = "repeat the command of the study, which trains this run again"
# what a damaged result.json raises, or one that lacks a section
RESULT_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def read_result(path: Path) -> dict[str, Any]:
    """Read the result.json of a run.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is damaged or has no checksum, has an unknown format or state, or is the result of another run
            than its folder's.
    """
    result = read_checksummed(path, REMEDY, _decode)
    known = result.get("format") in READABLE_FORMATS and result.get("status") in STATES
    need(
        known,
        "a result needs a format and a state that this version knows",
        f"{path} has {result.get('format')!r} and {result.get('status')!r}",
        "use the version that wrote it",
    )
    run = result.get("run")
    name = run.get("name") if isinstance(run, dict) else None
    need(name == path.parent.name, "a result must be in the folder of its run", f"{path} is that of {name}", REMEDY)
    return result


def _decode(text: str) -> Any:
    # a study may have thousands of results; this decoder takes a third of the time of Python's, which has the better
    # messages
    try:
        return from_json(text, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return decode_json(text)
