"""Spiral: rotate all channel pairs of queries and keys at one speed."""

import math

import torch
from torch import Tensor

from ordinate.core.shapes import EncodedKeys, EncodedQueries, Keys, Positions, Queries
from ordinate.schemes import Scheme


class Spiral(Scheme):
    """Spiral: RoPE with one frequency, that of some turns over the longest input.

        q_i, k_j turned by  2 pi turns p / max_length  in every pair of channels

    Enters at: queries, keys.
    Args:
        head_width: channels per head; even.
        max_length: longest input, which makes all turns [tokens].
        turns: number of turns; a whole number makes the ends alike.

    Raises:
        ValueError: an odd head width.
    Source: an example of Ordinate's; RoPE is Su et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864.
    Departs: nowhere.
    """

    shift_invariant = True
    citation = "@misc{spiral, title = {An example}, year = {2026}}"

    def __init__(self, *, head_width: int, max_length: int, turns: float = 1.0) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"spiral needs an even head width; got {head_width}; choose heads that divide width")
        self.rate = 2 * math.pi * turns / max_length

    def encode_query(self, q: Queries, pos: Positions) -> EncodedQueries:
        return self._turned(q, pos)

    def encode_key(self, k: Keys, pos: Positions) -> EncodedKeys:
        return self._turned(k, pos)

    def _turned(self, x: Tensor, pos: Positions) -> Tensor:
        # angles in float64: far positions lose no digits
        angle = (pos[:, None, :, :1].double() * self.rate).remainder(2 * math.pi)
        kind = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angle.cos().to(kind), angle.sin().to(kind)
        first, second = x.to(kind).chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)
