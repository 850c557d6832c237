"""Schemes that look at the wrong place: at indices, neighbours, other rows, the future."""

import torch
from torch import nn

from ordinate.schemes.alibi import Alibi
from ordinate.schemes.none import Unmarked
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5


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


class FeelsTheNumberOfHeads(Unmarked):
    def encode_key(self, k, pos):
        return k * k.shape[1]


class ContentByPlaces(Unmarked):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def content_bias(self, q, k, where):
        return self.table[: q.shape[2]] @ k.mT


class ScoresByPlaces(ContentByPlaces):
    def score(self, q, k, where):
        return (q + self.table[: q.shape[2]]) @ k.mT

    def content_bias(self, q, k, where):
        return None


class CarriesByPlaces(Unmarked):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def carry(self, weights, where):
        return weights.sum(-1, keepdim=True) * self.table[: weights.shape[2]]


class DropsAnAxis(T5):
    axes = (1, 2)
