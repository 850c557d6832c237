"""Position in attention: every scheme behind one contract, measured and compared."""

import lazy_loader

__version__ = "0.1.0"

# names live in __init__.pyi, so that `ordinate --help` does not import torch
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
