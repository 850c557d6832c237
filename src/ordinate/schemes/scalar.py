"""A scalar position embedding: the normalised position along one trained direction."""

import torch
from torch import nn

from ordinate.core.checks import need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import in_float64, on_device
from ordinate.schemes._scheme import Scheme


class Scalar(Scheme):
    """Add the normalised position, a number between 0 and 1, along one trained direction.

        x[p] += (p / max_length) * direction

    The simplest encoding, as a baseline: neighbouring positions differ by 1 / max_length only, so distinguishing them
    needs large weights, and a larger max_length makes the difference smaller.

    Enters at: token embeddings.
    Args:
        width: model width.
        max_length: position that is scaled to 1; positions below it are supported [tokens].
        scale: standard deviation of the direction at initialisation; should match the magnitude of the token
            embeddings.
    Raises:
        ValueError: a negative position, or one at or beyond max_length.
    Source: the question that precedes section 3.5 of Vaswani et al. 2017; see
        https://kazemnejad.com/blog/transformer_architecture_positional_encoding/ for its usual answer.
    Departs: nowhere. Fractional positions are supported too.
    """

    shift_invariant = False
    citation = """@misc{kazemnejad2019pencoding,
  title = {Transformer Architecture: The Positional Encoding},
  author = {Kazemnejad, Amirhossein},
  year = {2019},
  url = {https://kazemnejad.com/blog/transformer_architecture_positional_encoding/}
}"""

    def __init__(self, *, width: int, max_length: int, scale: float = 1.0) -> None:
        super().__init__()
        need_positive("width", width)
        need_positive("max_length", max_length)
        need_positive("scale", scale)
        self.width, self.max_length, self.step = width, max_length, 1 / max_length
        self.direction = nn.Parameter(torch.randn(width) * scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the normalised position times the direction."""
        self.check_positions(pos)
        wide = torch.promote_types(x.dtype, torch.float32)
        share = on_device(in_float64(pos[..., :1]) * self.step, wide, x.device)
        return x + (share * self.direction).to(x.dtype)
