"""Which keys a query of a causal call needs under a bias that falls linearly with the distance (ALiBi).

Keys whose weight the bias makes negligible are not read. Let s be the slope of a head. A score is at most
b_i = |q_i| max|k| |scale| by the Cauchy-Schwarz inequality, and the query's own key, at distance 0, has the score
o_i. All keys at distance D and more together weigh at most

    sum over e >= D of exp(b_i - s e) = exp(b_i - s D) / (1 - exp(-s))

and are left out if that is at most 2^-26 of exp(o_i), a quarter of the rounding error of the row in float32:

    D_i >= (b_i - o_i + 26 log 2 - log(1 - exp(-s))) / s

This is the bound of `ordinate.ops.decay_cutoff`, with the sum in closed form: no number is read from the device. A
soft cap, which is monotone, is applied to b_i and o_i; a sink can only lower the weight of what is left out.
NaN and infinity still reach all that see them: where a bound is not finite, nothing is left out.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Queries
from ordinate.ops.decay_cutoff import SKIPPED_SHARE
from ordinate.ops.triton.tiles import Tile

# tokens whose scores with their own keys are computed at a time
STEP = 4096
# largest number of keys; a span that ends there ends nowhere
NO_END = torch.iinfo(torch.int32).max


@torch.no_grad()
def needed_keys(
    q: Queries, k: Keys, slopes: Float[Tensor, "2 h"], start: int, scale: float, cap: float
) -> Int[Tensor, "b h i"]:
    """Return for each query the first key that it needs; never synchronises.

    Args:
        q: queries.
        k: keys; the last is that of the last query.
        slopes: by which the bias falls with each token behind and ahead, float32.
        start: index of the first query among the keys.
        scale: multiplies q.k.
        cap: soft cap; 0: none.
    """
    groups = q.shape[1] // k.shape[1]
    grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, start:]
    pairs = zip(grouped.split(STEP, 3), mine.split(STEP, 3), strict=True)
    own = torch.cat([(a * b).sum(-1, dtype=torch.float32) for a, b in pairs], -1).flatten(1, 2) * scale
    longest = torch.linalg.vector_norm(k, dim=-1, dtype=torch.float32).amax(-1).repeat_interleave(groups, 1)
    highest = torch.linalg.vector_norm(q, dim=-1, dtype=torch.float32) * longest[..., None] * abs(scale)
    # margin for the rounding of norms and products
    room = max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest
    highest, own = highest + room, own - room
    if cap:
        highest, own = (cap * (x / cap).tanh() for x in (highest, own))
    slope = slopes[0][:, None]
    share = math.log(SKIPPED_SHARE * torch.finfo(torch.float32).eps)
    distance = (highest - own - share - torch.log(-torch.expm1(-slope))) / slope
    index = torch.arange(start, start + q.shape[2], device=q.device)
    # the largest product is finite in 16 bits only where it is finite in float32
    certain = distance.isfinite() & own.isfinite() & (slope > 0)
    far = distance.clamp(0, k.shape[2]).ceil().long()
    return torch.where(certain, index - far, 0).clamp(min=0).int()


def key_spans(needed: Int[Tensor, "b h i"], tile: Tile) -> Int[Tensor, "b h tiles 2"]:
    """Return for each tile of queries the first key that one of them needs, and an end beyond all keys."""
    first = _lowest(needed, tile.rows)
    return torch.stack([first, torch.full_like(first, NO_END)], -1)


def query_spans(needed: Int[Tensor, "b h i"], tile: Tile, groups: int, keys: int) -> Int[Tensor, "b g tiles 2"]:
    """Return for each tile of keys the end of the range of queries of its heads that need one of them, from 0."""
    first = _lowest(needed.unflatten(1, (-1, groups)).amin(2), tile.rows)
    # from a tile on, the lowest that is needed: the last tile that needs a key is the last whose lowest is before it
    lowest = first.flip(-1).cummin(-1).values.flip(-1).contiguous()
    ends = torch.arange(tile.columns, keys + tile.columns, tile.columns, device=needed.device, dtype=torch.int32)
    stop = torch.searchsorted(lowest, ends.expand(*lowest.shape[:2], -1).contiguous()).int() * tile.rows
    return torch.stack([torch.zeros_like(stop), stop], -1)


def _lowest(needed: Tensor, size: int) -> Tensor:
    rest = -needed.shape[2] % size
    return torch.nn.functional.pad(needed, (0, rest), value=NO_END).unflatten(2, (-1, size)).amin(-1)
