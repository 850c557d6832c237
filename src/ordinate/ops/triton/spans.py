"""For each tile the range of tokens on the other side whose documents may be the same."""

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.geometry import PADDING
from ordinate.ops.triton.tiles import Tile


def document_spans(asks: Tensor, holds: Tensor, tile: Tile, of_keys: bool) -> Int[Tensor, "b tiles 2"]:
    """Return the first token on the other side that a tile needs, and the end of its range; never synchronises.

    A tile is skipped if the documents of the two tiles lie in ranges of ids that do not meet.

    Args:
        asks: documents of the queries.
        holds: documents of the keys; that of padding is one that no query has.
        tile: sizes of the tiles.
        of_keys: whether the ranges are those of tiles of keys.
    """
    q_low, q_high = _extremes(asks, asks == PADDING, tile.rows)
    k_low, k_high = _extremes(holds, holds == torch.iinfo(torch.int64).min, tile.columns)
    meet = (q_low[:, :, None] <= k_high[:, None]) & (k_low[:, None] <= q_high[:, :, None])
    size = tile.columns
    if of_keys:
        meet, size = meet.mT, tile.rows
    index = torch.arange(meet.shape[2], device=meet.device)
    first = torch.where(meet, index, meet.shape[2]).amin(2)
    stop = torch.where(meet, index + 1, 0).amax(2)
    return (torch.stack([first, stop], -1) * size).int()


def _extremes(document: Tensor, hidden: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest document of each tile, padding apart; of nothing but padding the lowest is the higher."""
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    rest = -document.shape[1] % size
    lows = torch.nn.functional.pad(document.masked_fill(hidden, most), (0, rest), value=most)
    highs = torch.nn.functional.pad(document.masked_fill(hidden, least), (0, rest), value=least)
    return lows.unflatten(1, (-1, size)).amin(2), highs.unflatten(1, (-1, size)).amax(2)
