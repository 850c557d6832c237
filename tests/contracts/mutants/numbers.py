"""Schemes with numerical errors: too low precision, lost gradients, stale tables."""

from dataclasses import replace

import torch

from ordinate.ops.rotate import rotate
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.none import NoPosition
from ordinate.schemes.rope import Rope
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5
from ordinate.schemes.transformer_xl import TransformerXl


class AngleInFloat32(Rope):
    def angles(self, pos):
        pairs = torch.tensor([self.theta ** (-2 * m / self.head_width) for m in range(self.head_width // 2)])
        return (pos.float() * pairs).double()


class AngleInModelDtype(Rope):
    def make_encoders(self, pos):
        def turn(x):
            return rotate(x, self.angles(pos.to(x.dtype)).to(x.dtype), self.layout)

        return turn, turn


class OffsetsInModelDtype(TransformerXl):
    def content_bias(self, q, k, where):
        q_pos, k_pos = (pos.to(q.dtype).double() for pos in (where.q_pos, where.k_pos))
        rounded = replace(where, q_pos=q_pos, k_pos=k_pos)
        return super().content_bias(q, k, rounded)


class SinusoidsInModelDtype(Sinusoidal):
    def embed(self, x, pos):
        rates = torch.tensor([self.theta ** (-2 * m / self.width) for m in range(self.width // 2)], dtype=x.dtype)
        angles = pos.to(x.dtype) * rates
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class AngleByMatrixProduct(Sinusoidal):
    def embed(self, x, pos):
        rates = torch.tensor([[self.theta ** (-2 * m / self.width) for m in range(self.width // 2)]])
        angles = pos.float() @ rates
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).to(x.dtype)


class FloatBuffer(Rope):
    def __init__(self, *, head_width: int):
        super().__init__(head_width=head_width)
        rates = [self.theta ** (-2 * m / head_width) for m in range(head_width // 2)]
        self.register_buffer("rates", torch.tensor(rates), persistent=False)

    def angles(self, pos):
        return pos.double() * self.rates.double()


class TensorOutsideStateDict(NoPosition):
    shift_invariant = False

    def __init__(self, *, width: int):
        super().__init__()
        self.table = torch.randn(1000, width)

    def embed(self, x, pos):
        return x + self.table[pos[..., 0]].to(x.dtype)


class DetachedBias(T5):
    def bias(self, where):
        return super().bias(where).detach()


class PartlyDetached(NoPosition):
    def encode_query(self, q, pos):
        return q + (0.1 * q).detach()


class CachesItsFirstTable(Sinusoidal):
    table = None

    def embed(self, x, pos):
        if self.table is None or self.table.shape[1] < x.shape[1]:
            self.table = super().embed(torch.zeros_like(x), pos)
        return x + self.table[:, : x.shape[1]].to(x.dtype)


class ModifiesItsInput(NoPosition):
    def encode_query(self, q, pos):
        return q.mul_(2)


class ReturnsFloat32(Rope):
    def encode_query(self, q, pos):
        return super().encode_query(q.float(), pos)


class OverflowsAtLargePositions(NoPosition):
    shift_invariant = False

    def embed(self, x, pos):
        return x * (pos / 1e5).exp().to(x.dtype)


class NeedsTwoTokens(NoPosition):
    def embed(self, x, pos):
        return x + 0 * pos.double().std(1, keepdim=True).to(x.dtype)


class DataDependentBranch(Alibi):
    def bias(self, where):
        return super().bias(where) * (1.0 if where.q_pos.max().item() < 4 else 2.0)


class ChangesWithEachCall(Alibi):
    asked = 0

    def bias(self, where):
        self.asked += 1
        return super().bias(where) * self.asked


class EncodersOfAnotherHook(Rope):
    # a subclass that overrides both, but not alike
    make_encoders = Rope.make_encoders

    def encode_query(self, q, pos):
        return 2 * super().encode_query(q, pos)


class Cubes(torch.autograd.Function):
    """Its gradient is right, but it has no graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, *grad_outputs):
        return (3 * grad_outputs[0] * ctx.saved_tensors[0] ** 2).detach()


class DropsSecondDerivatives(NoPosition):
    def encode_query(self, q, pos):
        return Cubes.apply(q)


class BranchesOnContent(NoPosition):
    def encode_query(self, q, pos):
        return q * (1.0 if bool(q.sum() > 0) else 2.0)
