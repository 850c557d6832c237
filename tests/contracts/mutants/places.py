"""Schemes that use the wrong indices: memory order, neighbours, other sequences, the future."""

import torch
from torch import nn

from ordinate.schemes.alibi import Alibi
from ordinate.schemes.none import NoPosition
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5


class MixesNeighbours(NoPosition):
    def encode_key(self, k, pos):
        return k + k.roll(-1, 2)


class SeesFutureThroughMean(NoPosition):
    def embed(self, x, pos):
        return x + x.mean(1, keepdim=True)


class NormalisesByLongestSequence(NoPosition):
    shift_invariant = False

    def embed(self, x, pos):
        return x + (pos / pos.max()).to(x.dtype)


class UsesMemoryIndices(NoPosition):
    shift_invariant = False

    def embed(self, x, pos):
        return x + torch.arange(x.shape[1], dtype=x.dtype)[None, :, None]


class UsesFirstSequenceForAll(Sinusoidal):
    def embed(self, x, pos):
        return super().embed(x, pos[:1])


class BiasByMemoryIndices(Alibi):
    def bias(self, where):
        queries, keys = where.shape
        offset = torch.arange(queries)[:, None] - torch.arange(keys)
        return -torch.tensor(self.slopes)[:, None, None] * offset.abs()[None, None]


class BlockOffByOne(Alibi):
    def bias(self, where):
        return super().bias(where) - float(where.start > 0)


class DependsOnNumberOfHeads(NoPosition):
    def encode_key(self, k, pos):
        return k * k.shape[1]


class ContentBiasByMemoryIndices(NoPosition):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def content_bias(self, q, k, where):
        return self.table[: q.shape[2]] @ k.mT


class ScoresByMemoryIndices(ContentBiasByMemoryIndices):
    def score(self, q, k, where):
        return (q + self.table[: q.shape[2]]) @ k.mT

    def content_bias(self, q, k, where):
        return None


class OutputTermByMemoryIndices(NoPosition):
    def __init__(self, *, head_width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, head_width))

    def value_bias(self, weights, where):
        return weights.sum(-1, keepdim=True) * self.table[: weights.shape[2]]


class IgnoresAnAxis(T5):
    axes = (1, 2)


class ReadsTheQueryOfTheFirstHead(NoPosition):
    shift_invariant = True

    def encode_query(self, q, pos):
        return q[:, :1].expand_as(q)


class ContentBiasOfTheFirstHead(ReadsTheQueryOfTheFirstHead):
    def encode_query(self, q, pos):
        return q

    def content_bias(self, q, k, where):
        return (q[:, :1] @ k.mT).expand(-1, q.shape[1], -1, -1)
