"""The command line that starts a module of Ordinate in a Python process of its own."""

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in another Python process.

    `python -m` alone puts the current folder first on the path, so that a file `json.py` lying there would be
    executed in place of Python's own; `-P` leaves the folder out.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
