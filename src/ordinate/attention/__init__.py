"""Attention with any scheme: `attend`, and the backends that compute it."""

from ordinate._public_names import public_names

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = public_names(__name__, __file__)
