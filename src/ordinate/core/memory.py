"""The memory of this machine, and the check that something fits into it before it is made."""

import os

from ordinate.core.checks import need


def machine_memory() -> int | None:
    """Return the size of this machine's memory [bytes]; None if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def need_memory(what: str, needed: int, *, times: int = 1) -> None:
    """Raise a ValueError if something does not fit into the memory of this machine.

    Args:
        what: what it is, for the message.
        needed: its size [bytes].
        times: how often this machine's memory may be exceeded, where another machine may do the work.
    """
    limit = times * (machine_memory() or 1 << 40)
    came = f"it needs {_gib(needed)} GiB, of {_gib(limit)} GiB"
    need(needed <= limit, f"{what} must fit into memory", came, "give smaller sizes")


def _gib(count: int) -> str:
    size = count / 2**30
    return f"{size:.3g}" if size < 100 else f"{size:,.0f}"
