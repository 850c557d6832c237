"""How the help text shows the default of an option."""

from typing import Any


def format_default(default: Any) -> str | None:
    """Return a default as it is typed on the command line: 1 2 4 8, 6.2e+12; None where there is nothing to type.

    An option that is off by default, and one without values, show none.
    """
    values = default if isinstance(default, tuple | list) else (default,)
    if not values or values[0] is None or values[0] is False:
        return None
    text = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    # a line break alone would break the box of the help text
    return text.strip() or None
