"""A score bias that depends on the key alone, as columns of queries and keys: every attention kernel then adds it."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import EncodedKeys, EncodedQueries, Keys, Queries
from ordinate.core.tensors import autocasts, on_device

# what the columns of the queries hold: a power of two, exact in every dtype, so that those of the keys stay small
QUERY_COLUMN = 64.0


def with_key_bias(
    q: Queries, k: Keys, bias: Float[Tensor, "b g j"], scale: float
) -> tuple[EncodedQueries, EncodedKeys]:
    """Append columns with q' . k' scale = q . k scale + bias.

    Args:
        q: queries.
        k: keys.
        bias: added to every score of a key, in float64 where the device has it.
        scale: multiplies q.k in attention.
    """
    rest, columns = bias / (scale * QUERY_COLUMN), []
    type = k.dtype
    if autocasts(k):
        # attention casts its inputs
        type = torch.get_autocast_dtype(k.device.type)
    # three parts of 8 bits or more have the 24 of float32; their products are exact, and summed in float32
    for _ in range(1 if type.itemsize >= torch.float32.itemsize else 3):
        column = rest.to(type)
        columns.append(on_device(column, k.dtype, k.device))
        rest = rest - column.to(rest.dtype)
    ones = torch.full_like(q[..., :1], QUERY_COLUMN).expand(-1, -1, -1, len(columns))
    return torch.cat([q, ones], -1), torch.cat([k, torch.stack(columns, -1)], -1)
