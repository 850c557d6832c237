"""Sinusoidal position embeddings (Vaswani et al., 2017): frequencies, tables, and sums of sinusoids."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Positions
from ordinate.core.tensors import in_float64

VASWANI = """@inproceedings{vaswani2017attention,
  title = {Attention Is All You Need},
  author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and
            Gomez, Aidan N. and Kaiser, Lukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2017},
  url = {https://arxiv.org/abs/1706.03762}
}"""
"""BibTeX entry of the Transformer paper."""

Form = Literal["vaswani", "concatenated", "tensor2tensor"]
OddWidth = Literal["paper", "truncate", "zero_pad"]


def frequencies(width: int, theta: float, form: Form, odd: OddWidth) -> list[float]:
    """Return the angular frequencies of a sinusoidal table of this width, lowest last [radians a token].

        vaswani, concatenated:  w_m = theta^(-2m / width)
        tensor2tensor:          w_m = theta^(-m / (pairs - 1))

    An odd width leaves a half pair; `odd` selects one of three published conventions (see `sinusoids`).
    """
    pairs = width // 2 if odd == "zero_pad" else (width + 1) // 2
    if form == "tensor2tensor":
        return [theta ** (-m / max(pairs - 1, 1)) for m in range(pairs)]
    over = width if odd == "paper" else 2 * pairs
    return [theta ** (-2 * m / over) for m in range(pairs)]


def sinusoids(pos: Positions, width: int, *, theta: float, form: Form, odd: OddWidth) -> Float[Tensor, "#b n width"]:
    """Sinusoidal position embeddings of the first axis, in float64 (see `core.tensors.in_float64`).

    Args:
        pos: positions [tokens].
        width: columns.
        theta: base of the wavelengths.
        form: `vaswani` interleaves sine and cosine; `concatenated` and `tensor2tensor` put all sines before all
            cosines.
        odd: for an odd width, `paper` applies the formula to each column with that width, `truncate` computes the
            next even width and drops its last column, `zero_pad` computes the even width below and adds a zero.
    """
    place = in_float64(pos[..., :1])
    angles = place * numbers_beside(place, frequencies(width, theta, form, odd), torch.float64)
    if form == "vaswani":
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    else:
        waves = torch.cat([angles.sin(), angles.cos()], -1)
    missing = width - waves.shape[-1]
    return torch.nn.functional.pad(waves, (0, missing))


def combine_sinusoids(
    waves: Float[Tensor, "#b n kept"], weights: Float[Tensor, "h kept pairs"]
) -> Float[Tensor, "#b h n pairs"]:
    """Linear combinations of sinusoids for each head and pair (the Fourier series of FoPE), in the dtype of `waves`.

    Terms are added one by one: a matrix product may round a token differently in a batch than alone.
    """
    batch, tokens, _ = waves.shape
    total = waves.new_zeros(batch, weights.shape[0], tokens, weights.shape[2])
    for wave, weight in zip(waves.unbind(-1), weights.to(waves.dtype).unbind(1), strict=True):
        total = torch.addcmul(total, wave[:, None, :, None], weight[:, None])
    return total
