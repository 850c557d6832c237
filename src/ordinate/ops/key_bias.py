"""A score bias that depends on the key alone, as columns of queries and keys: every attention kernel then adds it."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import EncodedKeys, EncodedQueries, Keys, Queries
from ordinate.core.tensors import autocasts, on_device

# what the columns of the queries hold: a power of two, exact in every dtype, so that those of the keys stay small
QUERY_COLUMN = 64.0


def attended_dtype(k: Keys) -> torch.dtype:
    """The dtype in which attention takes these keys: under autocast, that of autocast."""
    return torch.get_autocast_dtype(k.device.type) if autocasts(k) else k.dtype


def with_key_bias(
    q: Queries, k: Keys, bias: Float[Tensor, "b g j"], scale: float, dtype: torch.dtype
) -> tuple[EncodedQueries, EncodedKeys]:
    """Append columns with q' . k' scale = q . k scale + bias.

    Args:
        q: queries.
        k: keys.
        bias: added to every score of a key, in float64 where the device has it.
        scale: multiplies q.k in attention.
        dtype: that of the results. The values of the columns are those of `attended_dtype` in any case; the gradient
            of the bias is rounded to this one.
    """
    rest, columns, narrow = bias / (scale * QUERY_COLUMN), [], attended_dtype(k)
    # three parts of 8 bits or more have the 24 of float32; their products are exact, and summed in float32
    for _ in range(1 if narrow.itemsize >= torch.float32.itemsize else 3):
        # rounded numbers with the gradient of those before rounding
        column = rest + (rest.to(narrow).to(rest.dtype) - rest).detach()
        columns.append(on_device(column, dtype, k.device))
        rest = rest - column
    ones = torch.full_like(q[..., :1], QUERY_COLUMN, dtype=dtype).expand(-1, -1, -1, len(columns))
    return torch.cat([q.to(dtype), ones], -1), torch.cat([k.to(dtype), torch.stack(columns, -1)], -1)
