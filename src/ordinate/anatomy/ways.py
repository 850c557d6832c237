"""Find the ways in which a model takes other positions, and prove each."""

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from ordinate.anatomy.biases import find_biases
from ordinate.anatomy.positions import Argument, Places, Rotation, Table, Way, takes_ids

Trial = Callable[[list[Way], Places], Tensor]
"""The stream that a model gives when it is told positions in these ways."""


def find_ways(
    part: nn.Module, table: Table | None, rotation: Rotation | None, trial: Trial, length: int
) -> list[Way]:
    """Those ways by which the usual positions change nothing, and reversed ones do.

    Args:
        part: the model.
        table: its table of positions; None: it has none.
        rotation: what gives its cosines and sines; None: nothing does.
        trial: tries some ways.
        length: tokens of the example.
    """
    usual = torch.arange(length, device=next(part.parameters()).device)[None]
    # tokens in front may stand nowhere
    prefix = 0 if rotation is None else rotation.prefix
    other = torch.cat([usual[:, :prefix], usual[:, prefix:].flip(1)], 1)
    plain = trial([], usual)

    def works(way: Way) -> bool:
        try:
            same, moved = trial([way], usual), trial([way], other)
        except (IndexError, RuntimeError, TypeError):
            # an id that the model does not have, or a way that it does not know
            return False
        close = (same - plain).abs().max() <= 64 * torch.finfo(plain.dtype).eps * plain.abs().max()
        return bool(close) and not torch.equal(moved, plain)

    kind = table.kind if table is not None else "rope"
    first: list[Way] = []
    if takes_ids(part):
        offsets = dict.fromkeys((0, 0 if table is None else table.offset))
        first = [Argument(offset, kind) for offset in offsets]
    others: list[Way] = [way for way in (table, rotation) if way is not None]
    found = next(([way] for way in chain(first, others) if works(way)), [])
    return [*found, *(bias for bias in find_biases(part) if works(bias))]
