"""Schemes that are each wrong in one way, as schemes in the wild have been."""

import random

import torch
from torch import nn

from ordinate.scheme import Scheme
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.concatenated import Concatenated
from ordinate.schemes.learned import Learned
from ordinate.schemes.none import Unmarked
from ordinate.schemes.rope import Rope
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5


class AngleInFloat32(Rope):
    def angles(self, pos):
        pairs = torch.tensor([self.theta ** (-2 * m / self.head_width) for m in range(self.head_width // 2)])
        return (pos.float() * pairs).double()


class AngleInTypeOfModel(Rope):
    def encode_query(self, q, pos):
        self.dtype = q.dtype
        return super().encode_query(q, pos)

    def encode_key(self, k, pos):
        self.dtype = k.dtype
        return super().encode_key(k, pos)

    def angles(self, pos):
        return super().angles(pos.to(self.dtype)).to(self.dtype)


class WavesInTypeOfModel(Sinusoidal):
    def embed(self, x, pos):
        rates = torch.tensor([self.theta ** (-2 * m / self.width) for m in range(self.width // 2)], dtype=x.dtype)
        angles = pos.to(x.dtype) * rates
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class Buffer(Rope):
    def __init__(self, *, head_width: int):
        super().__init__(head_width=head_width)
        rates = [self.theta ** (-2 * m / head_width) for m in range(head_width // 2)]
        self.register_buffer("rates", torch.tensor(rates), persistent=False)

    def angles(self, pos):
        return pos.double() * self.rates.double()


class TensorBesideTheState(Unmarked):
    shift_invariant = False

    def __init__(self, *, width: int):
        super().__init__()
        self.table = torch.randn(1000, width)

    def embed(self, x, pos):
        return x + self.table[pos[..., 0]].to(x.dtype)


class MixesNeighbours(Unmarked):
    def encode_key(self, k, pos):
        return k + k.roll(-1, 2)


class PeeksThroughMean(Unmarked):
    def embed(self, x, pos):
        return x + x.mean(1, keepdim=True)


class CountsFromTheLongestRow(Unmarked):
    shift_invariant = False

    def embed(self, x, pos):
        return x + (pos / pos.max()).to(x.dtype)


class CountsPlaces(Unmarked):
    shift_invariant = False

    def embed(self, x, pos):
        return x + torch.arange(x.shape[1], dtype=x.dtype)[None, :, None]


class FirstRowForAll(Sinusoidal):
    def embed(self, x, pos):
        return super().embed(x, pos[:1])


class BiasByPlaces(Alibi):
    def bias(self, where):
        queries, keys = where.shape
        offset = torch.arange(queries)[:, None] - torch.arange(keys)
        return -torch.tensor(self.slopes)[:, None, None] * offset.abs()[None, None]


class BlockOffByOne(Alibi):
    def bias(self, where):
        return super().bias(where) - float(where.start > 0)


class ForgottenDetach(T5):
    def bias(self, where):
        return super().bias(where).detach()


class HalfDetached(Unmarked):
    def encode_query(self, q, pos):
        return q + (0.1 * q).detach()


class ClampsSilently(Learned):
    def check_positions(self, pos):
        pass

    def embed(self, x, pos):
        return x + self.table[pos[..., 0].long().clamp(0, self.max_length - 1)].to(x.dtype)


class OneNumberOnly(Learned):
    def check_positions(self, pos):
        if pos.max() >= self.max_length or pos.min() < 0:
            raise ValueError(f"at most {self.max_length} positions, please")


class WritesIntoItsInput(Unmarked):
    def encode_query(self, q, pos):
        return q.mul_(2)


class RemembersItsFirstTable(Sinusoidal):
    table = None

    def embed(self, x, pos):
        if self.table is None or self.table.shape[1] < x.shape[1]:
            self.table = super().embed(torch.zeros_like(x), pos)
        return x + self.table[:, : x.shape[1]].to(x.dtype)


class FeelsTheNumberOfHeads(Unmarked):
    def encode_key(self, k, pos):
        return k * k.shape[1]


class DrawsFromElsewhere(Unmarked):
    def __init__(self, *, width: int):
        super().__init__()
        self.vector = nn.Parameter(torch.full((width,), random.random()))

    def embed(self, x, pos):
        return x + self.vector


class TakesByPlace(Alibi):
    def __init__(self, heads: int):
        super().__init__(heads=heads)


class SaysNothing(Unmarked):
    """Something"""


class CitesNothing(Unmarked):
    citation = "Haviv et al. 2022"


class DeclaresNothing(Scheme):
    """An empty one."""


class ClaimsTooFew(Concatenated):
    def __init__(self, *, width: int):
        super().__init__(width=width)
        self.claims -= 2

    def embed(self, x, pos):
        return torch.cat([super().embed(x, pos), x[..., :4]], -1)


class MarksInFront(Concatenated):
    def embed(self, x, pos):
        return super().embed(x, pos).roll(self.claims, -1)


class AngleByMatrixProduct(Sinusoidal):
    def embed(self, x, pos):
        rates = torch.tensor([[self.theta ** (-2 * m / self.width) for m in range(self.width // 2)]])
        angles = pos.float() @ rates
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).to(x.dtype)


class TakesAnyAxes(Rope):
    def check_positions(self, pos):
        pass


class WholeOnlyUnsaid(Unmarked):
    shift_invariant = False

    def __init__(self, *, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(10_000, width))

    def embed(self, x, pos):
        return x + nn.functional.embedding(pos[..., 0], self.table).to(x.dtype)


class RoundsFractionsUp(Rope):
    def angles(self, pos):
        return super().angles(pos.ceil() + 1 if pos.is_floating_point() else pos)


class GrowsWithoutBound(Unmarked):
    shift_invariant = False

    def embed(self, x, pos):
        return x * (pos / 1e5).exp().to(x.dtype)


class NeedsTwoTokens(Unmarked):
    def embed(self, x, pos):
        return x + 0 * pos.double().std(1, keepdim=True).to(x.dtype)


class WidensItsInput(Rope):
    def encode_query(self, q, pos):
        return super().encode_query(q.float(), pos)


class DeclaredInvariant(Sinusoidal):
    shift_invariant = True


class DeclaredSensitive(Rope):
    shift_invariant = False


class ReadsAValue(Alibi):
    def bias(self, where):
        return super().bias(where) * (1.0 if where.q_pos.max().item() < 4 else 2.0)


class AsksTwice(Alibi):
    asked = 0

    def bias(self, where):
        self.asked += 1
        return super().bias(where) * self.asked


class ContentByPlaces(Unmarked):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def content_bias(self, q, k, where):
        return q @ self.table[: k.shape[2]].mT


class CarriesByPlaces(Unmarked):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def carry(self, weights, where):
        return weights.sum(-1, keepdim=True) * self.table[: weights.shape[2]]
