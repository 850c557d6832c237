"""Transformer models: decoder, encoder, encoder-decoder and vision transformer, generation and caches."""

import lazy_loader

# names live in __init__.pyi, so that importing the package does not import torch
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
