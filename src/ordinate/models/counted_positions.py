"""Positions that count some tokens of a text only (RoBERTa)."""

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.records import changed


def without_counting(where: Geometry, left_out: Bool[Tensor, "b n"]) -> Geometry:
    """Return a geometry in which some tokens are not counted: those after them, in their document, move up by one.

    Args:
        where: a geometry of one position axis, whose documents are each in one piece.
        left_out: the tokens that are not counted; their own position is that of the next one, or of the first.
    """
    before = left_out.long().cumsum(1) - left_out.long()
    if where.q_document is not None:
        changes = where.q_document.diff(dim=1, prepend=where.q_document[:, :1]) != 0
        places = torch.arange(before.shape[1], device=before.device)
        first = torch.where(changes, places, torch.zeros_like(places)).cummax(1).values
        before = before - before.gather(1, first.expand_as(before))
    pos = (where.q_pos - before[..., None]).clamp(min=0)
    return changed(where, q_pos=pos, k_pos=pos, consecutive=False, continues=None)
