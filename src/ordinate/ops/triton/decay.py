"""Which keys a query of a causal call needs under a bias that falls linearly with the distance (ALiBi).

Keys whose weight the bias makes negligible are not read. Let s be the slope of a head. A score is at most
b_i = |q_i| max|k| |scale| by the Cauchy-Schwarz inequality, and the query's own key, at distance 0, has the score
o_i. All keys at distance D and more together weigh at most

    sum over e >= D of exp(b_i - s e) = exp(b_i - s D) / (1 - exp(-s))

and are left out if that is at most 2^-26 of exp(o_i), a quarter of the rounding error of the row in float32:

    D_i >= (b_i - o_i + 26 log 2 - log(1 - exp(-s))) / s

The last whole group of m keys that the query sees, whose mean score is g_i, weighs at least m exp(g_i), so that
log m + g_i takes the place of o_i where it is larger. These are the bounds of `ordinate.ops.decay_cutoff`, with the
sum in closed form: no number is read from the device (`ordinate.ops.triton.needed`). A soft cap, which is monotone,
is applied to b_i and o_i, and shrinks the difference of b_i and g_i; a sink can only lower the weight of what is left
out. NaN and infinity still reach all that see them: where a bound is not finite, nothing is left out.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.ops.triton.tiles import Tile

# largest number of keys; a span that ends there ends nowhere
NO_END = torch.iinfo(torch.int32).max


def skips_keys(
    q: Tensor, k: Tensor, slopes: Tensor | None, document: Tensor | None, *, causal: bool, start: int | torch.SymInt
) -> bool:
    """Whether keys that a linear bias makes negligible are left out of a call.

    The bound compares with the query's own key, which must exist and be visible.
    """
    return causal and slopes is not None and document is None and bool(start + q.shape[2] == k.shape[2])


def key_spans(needed: Int[Tensor, "b h i"], tile: Tile) -> Int[Tensor, "b h tiles 2"]:
    """Return for each tile of queries the first key that one of them needs, and an end beyond all keys."""
    spans = needed.new_full((*needed.shape[:2], -(-needed.shape[2] // tile.rows), 2), NO_END)
    spans[..., 0] = _lowest(needed, tile.rows)
    return spans


def query_spans(needed: Int[Tensor, "b h i"], tile: Tile, groups: int, keys: int) -> Int[Tensor, "b g tiles 2"]:
    """Return for each tile of keys the end of the range of queries of its heads that need one of them, from 0."""
    first = _lowest(needed.unflatten(1, (-1, groups)).amin(2) if groups > 1 else needed, tile.rows)
    # from a tile on, the lowest that is needed: the last tile that needs a key is the last whose lowest is before it
    lowest = first.flip(-1).cummin(-1).values.flip(-1).contiguous()
    ends = torch.arange(tile.columns, keys + tile.columns, tile.columns, device=needed.device, dtype=torch.int32)
    stop = torch.searchsorted(lowest, ends.expand(*lowest.shape[:2], -1).contiguous()).int() * tile.rows
    return torch.stack([torch.zeros_like(stop), stop], -1)


def _lowest(needed: Tensor, size: int) -> Tensor:
    rest = -needed.shape[2] % size
    whole = torch.nn.functional.pad(needed, (0, rest), value=NO_END) if rest else needed
    return whole.unflatten(2, (-1, size)).amin(-1)
