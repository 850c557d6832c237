"""Distance between a query and a key, along one or several axes."""

from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ordinate.core.tensors import in_float64, on_device

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
        dtype: dtype of the result; float64 as in `core.tensors.in_float64`.
    """
    if offset.shape[-1] == 1:
        return _convert(offset[..., 0].abs(), dtype)
    if metric == "manhattan":
        return _convert(offset.abs().sum(-1), dtype)
    if metric == "chebyshev":
        return _convert(offset.abs().amax(-1), dtype)
    far = torch.linalg.vector_norm(in_float64(offset), dim=-1)
    return far if dtype == torch.float64 else on_device(far, dtype, offset.device)


def _convert(far: Tensor, dtype: torch.dtype) -> Tensor:
    return in_float64(far) if dtype == torch.float64 else far.to(dtype)
