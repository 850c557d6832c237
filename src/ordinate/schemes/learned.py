"""Learned absolute position embeddings (Gehring et al., 2017; GPT, BERT)."""

import copy
from typing import get_args

import torch
from torch import nn

from ordinate.core.checks import need_known, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.ops.resize import Align, resize_line
from ordinate.schemes._scheme import Scheme


class Learned(Scheme):
    """Learned absolute position embeddings: add a trained vector for each position to the token embeddings.

        x[p] += table[p]

    Positions that do not occur in training keep their initial vector. `resized` changes the length of a table.

    Enters at: token embeddings.
    Args:
        width: model width.
        max_length: rows of the table: positions 0 to max_length - 1 are supported [tokens].
        scale: standard deviation at initialisation; should match the magnitude of the token embeddings, 0.02 in GPT-2
            and BERT.
    Raises:
        ValueError: a position beyond the table, below zero, or fractional.
    Source: Gehring et al. 2017, Convolutional Sequence to Sequence Learning, section 3.1,
        https://arxiv.org/abs/1705.03122; in transformers since GPT and BERT.
    Departs: nowhere.
    """

    integer_positions = True
    shift_invariant = False
    citation = """@inproceedings{gehring2017convolutional,
  title = {Convolutional Sequence to Sequence Learning},
  author = {Gehring, Jonas and Auli, Michael and Grangier, David and Yarats, Denis and Dauphin, Yann N.},
  booktitle = {International Conference on Machine Learning},
  year = {2017},
  url = {https://arxiv.org/abs/1705.03122}
}"""

    def __init__(self, *, width: int, max_length: int, scale: float = 0.02) -> None:
        super().__init__()
        for name, value in (("width", width), ("max_length", max_length), ("scale", scale)):
            need_positive(name, value)
        self.width, self.max_length = width, max_length
        self.table = nn.Parameter(torch.randn(max_length, width) * scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the vector of each position."""
        self.check_positions(pos)
        return x + nn.functional.embedding(pos[..., 0], self.table).to(x.dtype)

    def resized(self, max_length: int, *, align: Align = "centres") -> "Learned":
        """Return a copy whose table is interpolated linearly to `max_length` rows.

        The new table is a separate parameter. At the same length it is bit-identical.

        Args:
            max_length: rows of the new table [tokens].
            align: `centres` places row p at the relative position (p + 1/2) / length, PyTorch's default
                (align_corners=False); `ends` keeps the first and the last vector (align_corners=True).
        Raises:
            ValueError: a length of 0 or less, or an unknown alignment.
        """
        need_positive("max_length", max_length)
        need_known("option align", align, get_args(Align))
        other = copy.deepcopy(self)
        other.max_length = max_length
        table = resize_line(self.table.detach(), max_length, align)
        other.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        return other
