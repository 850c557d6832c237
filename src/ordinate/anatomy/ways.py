"""Find the ways in which a model takes other positions, and prove each."""

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from ordinate.anatomy.biases import find_biases
from ordinate.anatomy.positions import Argument, Places, Rotation, Table, Way, takes_ids
from ordinate.shapes import Tokens
from ordinate.subject import Inputs, Unfit

Stream = Callable[[Inputs], Tokens]
"""The stream that a model gives when it reads something."""
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
        return _close(same, plain) and not torch.equal(moved, plain)

    kind = table.kind if table is not None else "rope"
    first: list[Way] = []
    if takes_ids(part):
        offsets = dict.fromkeys((0, 0 if table is None else table.offset))
        first = [Argument(offset, kind) for offset in offsets]
    others: list[Way] = [way for way in (table, rotation) if way is not None]
    found = next(([way] for way in chain(first, others) if works(way)), [])
    return [*found, *(bias for bias in find_biases(part) if works(bias))]


class Nowhere(Way):
    """A model that has no position code: wherever its tokens are said to stand, it is the same to it."""

    kind = "none"


def blind(stream: Stream, example: Inputs) -> bool:
    """Whether a model has no position code: where all see all, permuted texts give the same, permuted.

    Args:
        stream: reads something.
        example: texts; of images it is not known.
    """
    if example.ids is None:
        return False
    length = example.ids.shape[1]
    everyone = torch.ones(1, length, length, dtype=torch.bool, device=example.ids.device)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(0))
    try:
        plain, *usual = (stream(Inputs(example.ids, visible=seen)) for seen in (None, everyone, everyone.tril()))
        moved = stream(Inputs(example.ids[:, order], visible=everyone))
    except Unfit:
        return False
    # what else stands in a mask, such as a bias by distance, would be lost with it
    return any(_close(one, plain) for one in usual) and _close(moved, usual[0][:, order])


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= 64 * torch.finfo(other.dtype).eps * other.abs().max())
