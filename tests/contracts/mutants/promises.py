"""Schemes that violate their declarations, or declare nothing."""

import random

import torch
from torch import nn

from ordinate.schemes._scheme import Scheme
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.concatenated import Concatenated
from ordinate.schemes.fire import Fire
from ordinate.schemes.learned import Learned
from ordinate.schemes.none import NoPosition
from ordinate.schemes.rope import Rope
from ordinate.schemes.shaw import Shaw
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5


class ClampsSilently(Learned):
    def check_positions(self, pos):
        pass

    def embed(self, x, pos):
        return x + self.table[pos[..., 0].long().clamp(0, self.max_length - 1)].to(x.dtype)


class ErrorWithoutPosition(Learned):
    def check_positions(self, pos):
        if pos.max() >= self.max_length or pos.min() < 0:
            raise ValueError(f"at most {self.max_length} positions, please")


class InitialisedByPythonRandom(NoPosition):
    def __init__(self, *, width: int):
        super().__init__()
        self.vector = nn.Parameter(torch.full((width,), random.random()))

    def embed(self, x, pos):
        return x + self.vector


class ResetsNothing(Learned):
    def reset_parameters(self):
        pass


class LearnedGainOfNaN(NoPosition):
    """Multiplies keys by a learned number: 0 * NaN is its gradient beside padding."""

    shift_invariant = True

    def __init__(self, *, head_width: int):
        super().__init__()
        self.head_width, self.gain = head_width, nn.Parameter(torch.ones(()))

    def encode_key(self, k, pos):
        return k * self.gain.to(k.dtype)


class PositionalArgument(Alibi):
    def __init__(self, heads: int):
        super().__init__(heads=heads)


class NoDocstringSections(NoPosition):
    """Something"""


class NoBibtex(NoPosition):
    citation = "Haviv et al. 2022"


class NoDeclarations(Scheme):
    """An empty one."""


class AppendsTooManyColumns(Concatenated):
    def __init__(self, *, width: int):
        super().__init__(width=width)
        self.appended_width -= 2

    def embed(self, x, pos):
        return torch.cat([super().embed(x, pos), x[..., :4]], -1)


class PrependsColumns(Concatenated):
    def embed(self, x, pos):
        return super().embed(x, pos).roll(self.appended_width, -1)


class AcceptsAnyAxes(Rope):
    def check_positions(self, pos):
        pass


class UndeclaredIntegerPositions(NoPosition):
    shift_invariant = False

    def __init__(self, *, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(10_000, width))

    def embed(self, x, pos):
        return x + nn.functional.embedding(pos[..., 0], self.table).to(x.dtype)


class RoundsFractionalPositionsUp(Rope):
    def angles(self, pos):
        return super().angles(pos.ceil() + 1 if pos.is_floating_point() else pos)


class DeclaredInvariant(Sinusoidal):
    shift_invariant = True


class DeclaredSensitive(T5):
    shift_invariant = False


class BiasOfKeyPositionOnly(Alibi):
    """Equal to alibi after the softmax."""

    def bias(self, where):
        slopes = torch.tensor(self.slopes, dtype=torch.float64)
        return slopes[:, None, None] * where.k_pos[:, None, None, :, 0].expand(-1, 1, *where.shape)


class VectorsOffByOne(Shaw):
    def relative_vectors(self, where):
        made = super().relative_vectors(where)
        return made._replace(query_vectors=made.query_vectors.roll(1, 1))


class SlopesOfTheWrongSide(Alibi):
    def linear_bias(self, where):
        return super().linear_bias(where).flip(0) * torch.tensor([[1.0], [2.0]])


class CurveWithoutItsLastPiece(Fire):
    def log_bias(self, where):
        made = super().log_bias(where)
        return made._replace(pieces=made.pieces._replace(knots=made.pieces.knots[:-20]))


class BiasReachTooShort(T5):
    bias_reach = 100

    def __setattr__(self, name, value):
        if name != "bias_reach":
            super().__setattr__(name, value)


class ReachTooShort(Shaw):
    def relative_vectors(self, where):
        return super().relative_vectors(where)._replace(reach=3)
