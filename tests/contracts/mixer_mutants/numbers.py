"""Mutant mixers with wrong declarations, numerics or parameters."""

import runpy
from pathlib import Path

import torch
from torch import nn

Mean = runpy.run_path(str(Path(__file__).with_name("mean.py")))["Mean"]


class TellsOrder(Mean):
    def sums(self, x, there):
        ramp = torch.linspace(1, 2, x.shape[1], dtype=x.dtype)[:, None]
        return super().sums(x * ramp, there)


class TellsNoOrder(Mean):
    permutation_equivariant = False


class WidensItsInput(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count).double()


class SumsInHalf(Mean):
    def sums(self, x, there):
        total, count = super().sums(x.bfloat16().to(x.dtype) if x.dtype == torch.float32 else x, there)
        return total, count


class OverflowsUnderAutocast(Mean):
    def sums(self, x, there):
        if torch.is_autocast_enabled("cpu"):
            x = x * 1e30 * 1e30
        return super().sums(x, there)


class TensorBesideTheState(Mean):
    def __init__(self, *, width: int) -> None:
        super().__init__(width=width)
        self.hidden = torch.randn(width)

    def read(self, x, total, count):
        return super().read(x, total, count) + self.hidden.to(x.dtype) * 0.01


class Buffer(Mean):
    def __init__(self, *, width: int) -> None:
        super().__init__(width=width)
        self.register_buffer("rates", torch.linspace(0.1, 1.0, width))

    def read(self, x, total, count):
        return super().read(x, total, count) * self.rates


class Forgotten(Mean):
    def __init__(self, *, width: int) -> None:
        super().__init__(width=width)
        self.unused = nn.Parameter(torch.zeros(width))


class HalfDetached(Mean):
    def read(self, x, total, count):
        return super().read(x, total.detach() / 2 + total / 2, count)


class SaysNothing(Mean):
    pass


SaysNothing.__doc__ = None


class HonoursWhatIsNot(Mean):
    supported_hooks = frozenset({"bais"})


class UsuallyWithWhatItIgnores(Mean):
    default_scheme = "rope"


class TakesByPlace(Mean):
    def __init__(self, width: int = 32) -> None:
        super().__init__(width=width)


class DrawsFromElsewhere(Mean):
    def __init__(self, *, width: int) -> None:
        super().__init__(width=width)
        generator = torch.Generator()
        generator.seed()
        self.drawn = nn.Parameter(torch.randn(width, generator=generator))

    def read(self, x, total, count):
        return super().read(x, total, count) * self.drawn


class TakesAnyWidth(Mean):
    def forward(self, x, at, state=None):
        if x.shape[2] < 32:
            y, state = super().forward(nn.functional.pad(x, (0, 32 - x.shape[2])), at, state)
            return y[..., : x.shape[2]], state
        return super().forward(x, at, state)


class Cubes(torch.autograd.Function):
    """Its gradient is right, but it has no graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, *grad_outputs):
        return (3 * grad_outputs[0] * ctx.saved_tensors[0] ** 2).detach()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x)
        return x**2

    @staticmethod
    def backward(ctx, *grad_outputs):
        return (ctx.saved_tensors[0] + ctx.saved_tensors[1]) * grad_outputs[0]


class ReadsWhatIsSavedTwice(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count) + Twice.apply(x)


class DropsSecondDerivatives(Mean):
    def read(self, x, total, count):
        return super().read(Cubes.apply(x), total, count)


class TakesANormOfPadding(Mean):
    def read(self, x, total, count):
        return (
            super().read(x, total, count) + torch.linalg.vector_norm(self.project(x), dim=-1, keepdim=True).square()
        )


class BranchesOnValues(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count) * (1.0 if bool(total.sum() > 0) else 2.0)
