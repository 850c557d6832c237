"""Attention with any scheme: `attend`, and the backends that compute it."""

import lazy_loader

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
