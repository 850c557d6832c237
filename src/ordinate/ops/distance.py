"""Distance between a query and a key, along one or several axes."""

from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor

Metric = Literal["euclidean", "manhattan", "chebyshev"]


def distance(
    offset: Real[Tensor, "#b i j axes"], metric: Metric = "euclidean", *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "#b i j"]:
    """Return the distance of each offset.

        euclidean:  sqrt(x^2 + y^2)        manhattan:  |x| + |y|        chebyshev:  max(|x|, |y|)

    Along one axis all of them are |x|, exact for integer positions up to the conversion to `dtype`.

    Args:
        offset: query position minus key position [tokens].
        metric: how several axes are combined.
        dtype: dtype of the result.
    """
    if offset.shape[-1] == 1:
        return offset[..., 0].abs().to(dtype)
    if metric == "manhattan":
        return offset.abs().sum(-1).to(dtype)
    if metric == "chebyshev":
        return offset.abs().amax(-1).to(dtype)
    return torch.linalg.vector_norm(offset.double(), dim=-1).to(dtype)
