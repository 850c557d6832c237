"""Published claims about position, measured again: one file a paper, one rule for the verdict."""

import lazy_loader

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
