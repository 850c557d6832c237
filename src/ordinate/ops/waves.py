"""Sines and cosines of a position."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.shapes import Positions

VASWANI = """@inproceedings{vaswani2017attention,
  title = {Attention Is All You Need},
  author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and
            Gomez, Aidan N. and Kaiser, Lukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2017},
  url = {https://arxiv.org/abs/1706.03762}
}"""
"""The BibTeX entry of the paper that brought them to attention."""

Form = Literal["vaswani", "concatenated", "tensor2tensor"]
Odd = Literal["paper", "truncate", "zero_pad"]


def frequencies(width: int, theta: float, form: Form, odd: Odd) -> list[float]:
    """The angular frequencies of a sinusoidal table of this width, slowest last [radians a token].

        vaswani, concatenated:  w_m = theta^(-2m / width)
        tensor2tensor:          w_m = theta^(-m / (pairs - 1))

    An odd width has half a pair too many; `odd` names the three published ways out (see `sinusoids`).
    """
    pairs = width // 2 if odd == "zero_pad" else (width + 1) // 2
    if form == "tensor2tensor":
        return [theta ** (-m / max(pairs - 1, 1)) for m in range(pairs)]
    over = width if odd == "paper" else 2 * pairs
    return [theta ** (-2 * m / over) for m in range(pairs)]


def sinusoids(pos: Positions, width: int, *, theta: float, form: Form, odd: Odd) -> Float[Tensor, "#b n width"]:
    """A sine and a cosine of the first axis for each frequency, in float64.

    Args:
        pos: positions [tokens].
        width: columns.
        theta: base of the wavelengths.
        form: `vaswani` interleaves sine and cosine; `concatenated` and `tensor2tensor` put all sines before all
            cosines.
        odd: at an odd width, `paper` applies the formula to each column with the width as it is, `truncate` makes
            the next even width and drops its last column, `zero_pad` makes the even width below and adds a zero.
    """
    table = torch.tensor(frequencies(width, theta, form, odd), dtype=torch.float64, device=pos.device)
    angles = pos[..., :1].double() * table
    if form == "vaswani":
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    else:
        waves = torch.cat([angles.sin(), angles.cos()], -1)
    missing = width - waves.shape[-1]
    return torch.nn.functional.pad(waves, (0, missing))
