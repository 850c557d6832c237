"""A trained vector for each position, added to the tokens."""

import copy
from typing import get_args

import torch
from torch import nn

from ordinate.checks import need_known, need_positive
from ordinate.ops.resize import Align, resize_line
from ordinate.scheme import Scheme
from ordinate.shapes import Positions, Tokens


class Learned(Scheme):
    """Add a trained vector to each token, one for each position.

        x[p] += table[p]

    Positions never met in training keep the vector that they were born with. `resized` gives a trained table another
    length.

    Enters at: tokens.
    Args:
        width: columns of the model.
        max_length: rows of the table: positions 0 to max_length - 1 are served [tokens].
        scale: standard deviation of the vectors at birth; best the size of a token's numbers in the model, which is
            0.02 in GPT-2 and BERT.
    Raises:
        ValueError: a position beyond the table, below zero, or fractional.
    Source: Gehring et al. 2017, Convolutional Sequence to Sequence Learning, section 3.1,
        https://arxiv.org/abs/1705.03122; in transformers since GPT and BERT.
    Departs: nowhere.
    """

    whole = True
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
        """Add each position's vector."""
        self.check_positions(pos)
        return x + nn.functional.embedding(pos[..., 0], self.table).to(x.dtype)

    def resized(self, max_length: int, *, align: Align = "centres") -> "Learned":
        """Another one, whose table is this one stretched or squeezed to `max_length` rows by linear interpolation.

        Its table is a parameter of its own, which trains by itself. At the same length it is the same, bit by bit.

        Args:
            max_length: rows of the new table [tokens].
            align: `centres` takes positions for cells, so that row p stands at (p + 1/2) / length of the way, as
                PyTorch's interpolation does by default; `ends` keeps the first and the last vector.
        Raises:
            ValueError: a length of 0 or less, or an unknown way to align.
        """
        need_positive("max_length", max_length)
        need_known("way to align", align, get_args(Align))
        other = copy.deepcopy(self)
        other.max_length = max_length
        table = resize_line(self.table.detach(), max_length, align)
        other.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        return other
