"""Which keys a query of a causal call needs under a bias that falls linearly with the distance (ALiBi).

Keys whose weight the bias makes negligible are not read. Let s be the slope of a head. A score is at most
b_i = |q_i| max|k| |scale| by the Cauchy-Schwarz inequality, and the query's own key, at distance 0, has the score
o_i. All keys at distance D and more together weigh at most

    sum over e >= D of exp(b_i - s e) = exp(b_i - s D) / (1 - exp(-s))

and are left out if that is at most 2^-26 of exp(o_i), a quarter of the rounding error of the row in float32:

    D_i >= (b_i - o_i + 26 log 2 - log(1 - exp(-s))) / s

The last whole group of m keys that the query sees, whose mean score is g_i, weighs at least m exp(g_i), so that
log m + g_i takes the place of o_i where it is larger. These are the bounds of `ordinate.ops.decay_cutoff`, with the
sum in closed form: no number is read from the device. A soft cap, which is monotone, is applied to b_i and o_i, and
shrinks the difference of b_i and g_i; a sink can only lower the weight of what is left out. NaN and infinity still
reach all that see them: where a bound is not finite, nothing is left out.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Queries
from ordinate.ops.decay_cutoff import GROUP, SKIPPED_SHARE, group_scores, own_scores
from ordinate.ops.triton.tiles import Tile

# tokens whose scores with their own keys are computed at a time
STEP = 4096
# largest number of keys; a span that ends there ends nowhere
NO_END = torch.iinfo(torch.int32).max


@torch.no_grad()
def needed_keys(
    q: Queries, k: Keys, slopes: Float[Tensor, "2 h"], start: int, window: int, scale: float, cap: float
) -> Int[Tensor, "b h i"]:
    """Return for each query the first key that it needs; never synchronises.

    Args:
        q: queries.
        k: keys; the last is that of the last query.
        slopes: by which the bias falls with each token behind and ahead, float32.
        start: index of the first query among the keys.
        window: keys that a query sees, its own included; 0: all.
        scale: multiplies q.k.
        cap: soft cap; 0: none.
    """
    groups = q.shape[1] // k.shape[1]
    grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, start:]
    own, mean = (found(grouped, mine, scale, STEP).flatten(1, 2) for found in (own_scores, group_scores))
    longest = torch.linalg.vector_norm(k, dim=-1, dtype=torch.float32).amax(-1).repeat_interleave(groups, 1)
    highest = torch.linalg.vector_norm(q, dim=-1, dtype=torch.float32) * longest[..., None] * abs(scale)
    # margin for the rounding of norms and products
    room = max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest
    highest, own, mean = highest + room, own - room, mean - room
    slope = slopes[0][:, None]
    behind = torch.arange(1, q.shape[2] + 1, device=q.device) % GROUP
    above = highest - mean - math.log(GROUP) + slope * (behind + (GROUP - 1) / 2)
    if window:
        above = torch.where(behind + GROUP <= window, above, math.inf)
    if cap:
        highest, own = (cap * (x / cap).tanh() for x in (highest, own))
    share = math.log(SKIPPED_SHARE * torch.finfo(torch.float32).eps)
    distance = ((highest - own).minimum(above) - share - torch.log(-torch.expm1(-slope))) / slope
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
