"""Synthetic residual streams whose position information is known."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

VOCABULARY = 2000


def zipf_tokens(texts: int, length: int, seed: int, vocabulary: int = VOCABULARY) -> Int[Tensor, "texts length"]:
    """Draw independent tokens whose frequencies fall as 1 / rank, as those of words do."""
    draw = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    return torch.multinomial(weights, texts * length, replacement=True, generator=draw).reshape(texts, length)


def token_vectors(ids: Int[Tensor, "texts places"], width: int) -> Float[Tensor, "texts places width"]:
    """Vectors that depend on the token alone: no position at all."""
    table = torch.randn(VOCABULARY, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return table[ids]
