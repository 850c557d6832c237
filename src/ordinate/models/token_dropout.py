"""Token dropout of protein language models (ESM)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Tokens

TRAINED_SHARE = 0.15 * 0.8
"""Share of masked tokens in the training of ESM: of 15 per cent that were chosen, 8 of 10 were masked."""


def with_token_dropout(x: Tokens, masked: Bool[Tensor, "b n"], where: Geometry) -> Tokens:
    """Leave out the embeddings of masked tokens, and scale those of the others as dropout does.

        x_i = 0 for masked tokens,   x_i = x_i (1 - 0.12) / (1 - s) for others

    s is the share of masked tokens in the text, 0.12 that in training.

    Args:
        x: token embeddings.
        masked: the masked tokens.
        where: geometry of the tokens, whose documents are each in one piece; of a text without another token nothing
            is left.
    Source: Lin et al. 2023, https://doi.org/10.1126/science.ade2574, and its code,
        https://github.com/facebookresearch/esm.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    share = _shares(masked, where).to(wide)
    # 0 is left of a text in which all tokens are masked: its factor has no effect, but must be finite
    factor = (1 - TRAINED_SHARE) / (1 - share).clamp(min=torch.finfo(wide).eps)
    return torch.where(masked[..., None], 0.0, x * factor[..., None]).to(x.dtype)


def _shares(masked: Bool[Tensor, "b n"], where: Geometry) -> Float[Tensor, "b n"]:
    """Return for each token the share of masked ones in its text."""
    counted = masked.double()
    if where.q_document is None:
        return counted.mean(1, keepdim=True).expand_as(counted)
    documents = where.q_document.expand_as(masked)
    changes = documents.diff(dim=1, prepend=documents[:, :1]) != 0
    piece, real = changes.long().cumsum(1), (documents != PADDING).double()
    sums = [torch.zeros_like(counted).scatter_add(1, piece, of).gather(1, piece) for of in (counted * real, real)]
    return sums[0] / sums[1].clamp(min=1)
