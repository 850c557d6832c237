"""Published checkpoints: reading and writing them, and Ordinate's attention inside transformers."""

from ordinate._public_names import public_names

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = public_names(__name__, __file__)
