"""Position in attention: every scheme behind one contract, measured and compared."""

import sys

# `python -m ordinate` puts the current folder first on the path: files json.py or ast.py lying there would be
# executed in place of Python's own. While runpy looks for the module, which imports this package first, argv begins
# with -m, and the module's name ends what orig_argv has before the arguments; -m may be joined to it
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    _module = sys.orig_argv[len(sys.orig_argv) - len(sys.argv)]
    if _module.removeprefix("-m").partition(".")[0] == __name__:
        del sys.path[0]

from ordinate._public_names import public_names

__version__ = "0.1.0"

# names live in __init__.pyi, so that `ordinate --help` does not import torch
__getattr__, __dir__, __all__ = public_names(__name__, __file__)
