"""What it costs a model when something is done to its input: a number for each text."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ordinate.measures.presenting import Order, Sample, last, undone
from ordinate.measures.telling import OF_LENGTH
from ordinate.subject import Inputs, Subject

# of a text for a model with a masked head, the share of tokens that are to be said
ASKED = 0.15

Numbers = Float[ndarray, "texts"]
Change = Callable[[slice, Inputs], Inputs]
"""Something else that is done to the inputs of these texts."""


class Gauge(ABC):
    """Measures one way of presenting a sample.

    Args:
        subject: the model.
        sample: what it reads.
        seed: decides which tokens are asked for.
    """

    name: ClassVar[str]
    """What is measured."""
    unit: ClassVar[str]
    """What it is counted in."""

    def __init__(self, subject: Subject, sample: Sample, seed: int) -> None:
        self.subject, self.sample, self.seed = subject, sample, seed

    def measure(
        self,
        order: Order | None = None,
        *,
        tokens: bool = True,
        positions: bool = False,
        visible: Bool[Tensor, "#texts n n"] | None = None,
        change: Change = lambda rows, inputs: inputs,
    ) -> Numbers:
        """The number of each text when it is presented so; the arguments are those of `Sample.given`."""
        found = []
        for rows in self.sample.parts(self.subject.facts):
            given = self.sample.given(rows, order, tokens=tokens, positions=positions, visible=visible)
            moved = order[rows] if order is not None and tokens else None
            found.append(self._read(rows, change(rows, self._asking(rows, given)), moved))
        return np.concatenate(found)

    def _asking(self, rows: slice, inputs: Inputs) -> Inputs:
        return inputs

    @abstractmethod
    def _read(self, rows: slice, inputs: Inputs, moved: Order | None) -> Numbers: ...


class Surprise(Gauge):
    """How surprising the next token is, on average over a text."""

    name, unit = "loss", "nats a token"

    def _read(self, rows: slice, inputs: Inputs, moved: Order | None) -> Numbers:
        logits = self.subject.read(inputs).logits
        if logits is None or inputs.ids is None:
            raise ValueError("surprise needs logits of the next token; got none; ask `gauge` for what fits")
        return nats(logits[:, :-1], inputs.ids[:, 1:]).double().mean(1).numpy()


class Masked(Gauge):
    """How surprising hidden tokens are to a model that reads from both sides, on average over a text.

    A share of the tokens is hidden by the model's mask token, or by a random token of the texts where it has none.
    The same tokens are hidden in every arm, wherever they stand.
    """

    name, unit = "loss of hidden tokens", "nats a token"

    def __init__(self, subject: Subject, sample: Sample, seed: int) -> None:
        super().__init__(subject, sample, seed)
        if sample.ids is None:
            raise ValueError("hidden tokens need texts; got images; ask `gauge` for what fits")
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(sample.ids.shape, generator=generator)
        noise[:, : sample.fixed] = 2.0
        count = max(1, round(ASKED * sample.length))
        self.hidden = torch.zeros(sample.ids.shape, dtype=torch.bool).scatter(1, noise.argsort(1)[:, :count], True)
        drawn = sample.ids.flatten()[torch.randint(sample.ids.numel(), sample.ids.shape, generator=generator)]
        mask = subject.facts.mask_token
        stand_in = drawn if mask is None else torch.full_like(drawn, mask)
        self.shown = Sample(torch.where(self.hidden, stand_in, sample.ids), None, sample.fixed, None)
        self.asked, self.sample = sample.ids, self.shown

    def _read(self, rows: slice, inputs: Inputs, moved: Order | None) -> Numbers:
        logits = self.subject.read(inputs).logits
        if logits is None:
            raise ValueError("hidden tokens need a head that says them; got none; ask `gauge` for what fits")
        hidden, asked = self.hidden[rows], self.asked[rows]
        if moved is not None:
            hidden, asked = hidden.gather(1, moved), asked.gather(1, moved)
        found = nats(logits, asked).double() * hidden
        return (found.sum(1) / hidden.sum(1)).numpy()


class Turned(Gauge):
    """How far the vectors in the end are from those of the text as it is, each token compared with itself.

    |f(changed) - f(text)| / |f(text)|
    """

    name, unit = "change of the output", OF_LENGTH

    def __init__(self, subject: Subject, sample: Sample, seed: int) -> None:
        super().__init__(subject, sample, seed)
        plain = [last(subject, sample.given(rows))[1].float() for rows in sample.parts(subject.facts)]
        self.plain = torch.cat(plain)

    def _read(self, rows: slice, inputs: Inputs, moved: Order | None) -> Numbers:
        _, stream = last(self.subject, inputs)
        own = self.plain[rows].double()
        found = stream if moved is None else undone(stream, moved)
        return ((found - own).flatten(1).norm(dim=1) / own.flatten(1).norm(dim=1)).numpy()


def gauge(subject: Subject, sample: Sample, seed: int) -> Gauge:
    """What fits the model: its loss where it predicts tokens, else the change of its output."""
    facts = subject.facts
    if sample.ids is None or facts.kind == "vision":
        return Turned(subject, sample, seed)
    if subject.read(sample.first(1, 8).given(slice(0, 1))).logits is None or facts.kind == "encoder-decoder":
        return Turned(subject, sample, seed)
    return Surprise(subject, sample, seed) if facts.kind == "decoder" else Masked(subject, sample, seed)


def nats(logits: Float[Tensor, "b n classes"], targets: Tensor) -> Float[Tensor, "b n"]:
    """How surprising each target is."""
    # one text after another: of a large vocabulary, copies of all of them are slow
    rows = zip(logits, targets, strict=True)
    return torch.stack([cross_entropy(row.float(), asked, reduction="none") for row, asked in rows])
