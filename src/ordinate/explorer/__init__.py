"""The explorer: one offline HTML page in which small trained models run and panels answer questions on position."""

from ordinate._public_names import public_names

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = public_names(__name__, __file__)
