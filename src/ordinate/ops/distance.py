"""How far apart a query and a key are."""

from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor

Metric = Literal["euclidean", "manhattan", "chebyshev"]


def distance(
    offset: Real[Tensor, "#b i j axes"], metric: Metric = "euclidean", *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "#b i j"]:
    """The distance that belongs to each offset, in `dtype` or wider.

        euclidean:  sqrt(x^2 + y^2)        manhattan:  |x| + |y|        chebyshev:  max(|x|, |y|)

    Along one axis all of them are |x|, exact for whole positions before it is converted.

    Args:
        offset: query position minus key position [tokens].
        metric: how several axes make one number.
        dtype: the type of the result, unless that of the positions is wider.
    """
    wide = torch.promote_types(offset.dtype, dtype)
    if offset.shape[-1] == 1:
        return offset[..., 0].abs().to(wide)
    if metric == "manhattan":
        return offset.abs().sum(-1).to(wide)
    if metric == "chebyshev":
        return offset.abs().amax(-1).to(wide)
    return torch.linalg.vector_norm(offset.to(wide), dim=-1)
