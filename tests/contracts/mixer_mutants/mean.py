"""A correct mixer, and mutants of it that violate one contract test each: leaks, lost state."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ordinate.mixers._mixer import Mixer, MixerState
from ordinate.mixers._sequence import SequenceMixer


@dataclass(frozen=True, eq=False)
class Sums(MixerState):
    total: Tensor
    count: Tensor


class Mean(SequenceMixer):
    """Each token gets the mean of the visible tokens, plus its own square.

        y_t = 1 / t sum_{s <= t} W x_s + x_t^2

    Source: none, for tests.
    Departs: nothing.
    """

    supported_hooks = frozenset()
    permutation_equivariant = True
    default_scheme = "none"

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)

    def mix_sequences(self, x, at, real, state):
        there = torch.ones_like(x[..., :1]) if real is None else real[..., None].to(x.dtype)
        total, count = self.sums(x, there)
        if state is not None:
            total, count = total + state.total, count + state.count
        if at.where.is_causal:
            return self.read(x, total, count), Sums(total[:, -1:], count[:, -1:])
        return self.read(x, total[:, -1:].expand_as(x), count[:, -1:]), None

    def sums(self, x, there):
        return (self.project(x) * there).cumsum(1), there.cumsum(1)

    def read(self, x, total, count):
        return total / count.clamp(min=1) + x.square()


class Peeks(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count) + 1e-6 * x.sum(1, keepdim=True)


class DividesByWhatOverflows(Mean):
    def forward(self, x, at, state=None):
        # its own: nothing keeps the gradient of a large token, 0 / infinity, from the parameters
        y, state = super().forward(x, at, state)
        return y.masked_fill(~y.isfinite(), 0.0) / (1 + self.project(x).exp()).clamp(max=1e300), state


class MultipliesTheFutureByZero(Mean):
    def forward(self, x, at, state=None):
        y, state = super().forward(x, at, state)
        return y + 0.0 * x.sum(1, keepdim=True), state


class HearsNoFuture(Mean):
    def mix_sequences(self, x, at, real, state):
        there = torch.ones_like(x[..., :1]) if real is None else real[..., None].to(x.dtype)
        y = self.read(x, *self.sums(x, there))
        return (y, Sums(y[:, -1:], y[:, -1:])) if at.where.is_causal else (y, None)


class TakesAnyForm(Mixer):
    supported_hooks = frozenset()
    permutation_equivariant = True
    default_scheme = "none"
    causal = False

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, x, at, state=None):
        return self.project(x.nan_to_num()).cumsum(1).expand_as(x), None


class Forgets(Mean):
    def mix_sequences(self, x, at, real, state):
        return super().mix_sequences(x, at, real, None)


class ForgetsTheCount(Mean):
    def mix_sequences(self, x, at, real, state):
        old = None if state is None else Sums(state.total, torch.zeros_like(state.count))
        return super().mix_sequences(x, at, real, old)


class KeepsTheSumsOfNoTokens(Mean):
    def forward(self, x, at, state=None):
        y, after = super().forward(x, at, state)
        # with a state before the first token, which the next call refuses
        return y, after if x.shape[1] else self._unpacked(x.new_zeros(len(x), 1, x.shape[2]), at, None)[1]


class WritesIntoItsMemory(Mean):
    def mix_sequences(self, x, at, real, state):
        y, new = super().mix_sequences(x, at, real, state)
        if state is not None:
            state.total.add_(1.0)
        return y, new


class RemembersTheWholeBatch(Mean):
    def mix_sequences(self, x, at, real, state):
        y, new = super().mix_sequences(x, at, real, state)
        return y, None if new is None else Sums(new.total.mean(0, keepdim=True).expand_as(new.total), new.count)


class RemembersRowsElsewhere(Mean):
    def mix_sequences(self, x, at, real, state):
        y, new = super().mix_sequences(x, at, real, state and Sums(state.total.transpose(0, 1), state.count))
        return y, new and Sums(new.total.transpose(0, 1), new.count)


class RemembersBesideTheState(Mean):
    def mix_sequences(self, x, at, real, state):
        if state is not None and x.shape[0] == self.remembered.total.shape[0]:
            state = self.remembered
        y, new = super().mix_sequences(x, at, real, state)
        self.remembered = new or state
        return y, new


class CountsPadding(Mean):
    def sums(self, x, there):
        return super().sums(x, torch.ones_like(there))


class LearnsFromPadding(Mean):
    def forward(self, x, at, state=None):
        y, state = super().forward(x, at, state)
        # exactly 0, but the gradient of the projection is NaN where x is
        return y + (0.0 * self.project(x)).nan_to_num(0.0), state


class MixesRows(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count) - 1e-3 * total.mean(0, keepdim=True)


class SeesAllDocuments(TakesAnyForm):
    causal = True

    def forward(self, x, at, state=None):
        self.check_geometry(at.where)
        y = self.project(x).cumsum(1)
        return (y if at.where.is_causal else y[:, -1:].expand_as(y)), MixerState()


class AddsToPadding(Mean):
    def forward(self, x, at, state=None):
        y, state = super().forward(x, at, state)
        return y + 1e-9, state


class StopsAtItsChunk(Mean):
    def read(self, x, total, count):
        y = super().read(x, total, count)
        y[:, len(y[0]) // 16 * 16 :] = x[:, len(y[0]) // 16 * 16 :]
        return y


class NeedsTwoTokens(Mean):
    def read(self, x, total, count):
        return super().read(x, total, count) / x.std(1, keepdim=True).detach()


class TakesAnyLength(Mean):
    def __init__(self, *, width: int, max_length: int) -> None:
        super().__init__(width=width)
        self.max_length = max_length

    def check_geometry(self, where):
        pass


class RefusesLongTexts(Mean):
    def check_geometry(self, where):
        if where.shape[1] > 64:
            raise ValueError("too long")
