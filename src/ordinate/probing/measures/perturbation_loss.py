"""Per-sequence loss or output change of a model under an input perturbation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ordinate.probing._adapter import Inputs, ModelAdapter, NotApplicable
from ordinate.probing.measures.formatting import RELATIVE_UNIT
from ordinate.probing.measures.samples import Permutation, Sample, final_residual, unpermuted

# share of tokens that are masked for a masked language model
MASKED_FRACTION = 0.15

PerText = Float[ndarray, "texts"]
InputChange = Callable[[slice, Inputs], Inputs]
"""A further perturbation of the inputs of these texts."""


class Metric(ABC):
    """Metric of a model on a sample: one number per text, under any perturbation of the inputs.

    Args:
        subject: the model.
        sample: the texts or images.
        seed: seed of the choice of masked tokens.
    """

    name: ClassVar[str]
    """Name in the report."""
    unit: ClassVar[str]
    """Unit of the numbers."""

    def __init__(self, subject: ModelAdapter, sample: Sample, seed: int) -> None:
        self.subject, self.sample, self.seed = subject, sample, seed

    def per_text(
        self,
        permutation: Permutation | None = None,
        *,
        tokens: bool = True,
        positions: bool = False,
        mask: Bool[Tensor, "#texts n n"] | None = None,
        change: InputChange = lambda rows, inputs: inputs,
    ) -> PerText:
        """Return the number of each text under a perturbation; the arguments are those of `Sample.given`.

        Raises:
            NotApplicable: a number is not finite.
        """
        found = []
        for rows in self.sample.batches(self.subject.info):
            given = self.sample.inputs(rows, permutation, tokens=tokens, positions=positions, mask=mask)
            moved = permutation[rows] if permutation is not None and tokens else None
            found.append(self._read(rows, change(rows, self._asking(rows, given)), moved))
        numbers, facts = np.concatenate(found), self.subject.info
        if not np.isfinite(numbers).all():
            kind = str(facts.dtype).removeprefix("torch.")
            raise NotApplicable(f"the {self.name} of {facts.name} is not finite; in {kind} its numbers may overflow")
        return numbers

    def _asking(self, rows: slice, inputs: Inputs) -> Inputs:
        return inputs

    @abstractmethod
    def _read(self, rows: slice, inputs: Inputs, moved: Permutation | None) -> PerText: ...


class NextTokenLoss(Metric):
    """Next-token cross-entropy, averaged over each text."""

    name, unit = "loss", "nats per token"

    def _read(self, rows: slice, inputs: Inputs, moved: Permutation | None) -> PerText:
        logits = self.subject.forward(inputs).logits
        if logits is None or inputs.ids is None:
            raise ValueError("next-token loss needs next-token logits; got none; use `gauge` to choose a metric")
        return token_losses(logits[:, :-1], inputs.ids[:, 1:]).double().mean(1).numpy()


class MaskedTokenLoss(Metric):
    """Masked-token cross-entropy of a bidirectional model, averaged over each text.

    A share of the tokens is replaced by the mask token, or by random tokens of the texts if the model has none. The
    same tokens are masked in every arm, wherever they are moved.
    """

    name, unit = "loss of masked tokens", "nats per token"

    def __init__(self, subject: ModelAdapter, sample: Sample, seed: int) -> None:
        super().__init__(subject, sample, seed)
        if sample.ids is None:
            raise ValueError("masked-token loss needs texts; got images; use `gauge` to choose a metric")
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(sample.ids.shape, generator=generator)
        noise[:, : sample.fixed] = 2.0
        count = max(1, round(MASKED_FRACTION * sample.length))
        self.hidden = torch.zeros(sample.ids.shape, dtype=torch.bool).scatter(1, noise.argsort(1)[:, :count], True)
        drawn = sample.ids.flatten()[torch.randint(sample.ids.numel(), sample.ids.shape, generator=generator)]
        mask = subject.info.mask_token
        stand_in = drawn if mask is None else torch.full_like(drawn, mask)
        self.shown = Sample(torch.where(self.hidden, stand_in, sample.ids), None, sample.fixed, None)
        self.targets, self.sample = sample.ids, self.shown

    def _read(self, rows: slice, inputs: Inputs, moved: Permutation | None) -> PerText:
        logits = self.subject.forward(inputs).logits
        if logits is None:
            raise ValueError(
                "masked-token loss needs a language-model head; got none; use `gauge` to choose a metric"
            )
        hidden, asked = self.hidden[rows], self.targets[rows]
        if moved is not None:
            hidden, asked = hidden.gather(1, moved), asked.gather(1, moved)
        found = token_losses(logits, asked).double() * hidden
        return (found.sum(1) / hidden.sum(1)).numpy()


class OutputChange(Metric):
    """Relative change of the final residual stream, each token compared with itself; the median over tokens.

    |f(changed)_i - f(text)_i| / |f(text)_i|
    """

    name, unit = "change of the output", RELATIVE_UNIT

    def __init__(self, subject: ModelAdapter, sample: Sample, seed: int) -> None:
        super().__init__(subject, sample, seed)
        plain = [final_residual(subject, sample.inputs(rows))[1].float() for rows in sample.batches(subject.info)]
        self.plain = torch.cat(plain)

    def _read(self, rows: slice, inputs: Inputs, moved: Permutation | None) -> PerText:
        _, stream = final_residual(self.subject, inputs)
        own = self.plain[rows].double()
        found = stream if moved is None else unpermuted(stream, moved)
        return relative_changes(found, own).median(1).values.numpy()


def relative_changes(
    changed: Float[Tensor, "texts *n width"], plain: Float[Tensor, "texts *n width"]
) -> Float[Tensor, "texts *n"]:
    """Change of each vector relative to its own norm.

    A norm over all tokens of a text would be that of the few with massive activations, such as the first one.
    """
    return (changed - plain).norm(dim=-1) / plain.norm(dim=-1).clamp(min=torch.finfo(plain.dtype).tiny)


def metric_for(subject: ModelAdapter, sample: Sample, seed: int) -> Metric:
    """Choose the metric for a model: its loss if it predicts tokens, otherwise the change of its output."""
    facts = subject.info
    if sample.ids is None or facts.kind == "vision":
        return OutputChange(subject, sample, seed)
    if subject.forward(sample.truncated(1, 8).inputs(slice(0, 1))).logits is None or facts.kind == "encoder-decoder":
        return OutputChange(subject, sample, seed)
    return NextTokenLoss(subject, sample, seed) if facts.kind == "decoder" else MaskedTokenLoss(subject, sample, seed)


def token_losses(logits: Float[Tensor, "b n classes"], targets: Tensor) -> Float[Tensor, "b n"]:
    """Cross-entropy of each target [nats]."""
    # one text at a time: float32 copies of all logits are slow for a large vocabulary
    rows = zip(logits, targets, strict=True)
    return torch.stack([cross_entropy(row.float(), asked, reduction="none") for row, asked in rows])
