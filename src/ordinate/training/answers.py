"""What a model says to a batch, and which of its questions it answers rightly."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.batch import SILENT, Batch
from ordinate.training.evaluate import TOKENS_AT_ONCE, products


@runtime_checkable
class Answers(Protocol):
    """A model that takes a whole batch: our own do."""

    def answer(self, batch: Batch) -> Float[Tensor, "b *n classes"]:
        """The logits of each place."""


def answer(model: nn.Module, batch: Batch) -> Float[Tensor, "b *n classes"]:
    """The logits of each place of a batch; a model without a method `answer` is given the inputs alone."""
    given: object = model
    return given.answer(batch) if isinstance(given, Answers) else model(batch.inputs)


def answered(model: nn.Module, batch: Batch, precision: str) -> Bool[Tensor, "b *n"]:
    """Where the likeliest token is the answer; False where nothing is asked.

    Args:
        model: gives the logits of each place.
        batch: the questions.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    return told(model, batch, precision)[1]


def told(model: nn.Module, batch: Batch, precision: str) -> tuple[Float[Tensor, "b *n"], Bool[Tensor, "b *n"]]:
    """How surprising each answer is to the model [nats], and where its likeliest is right; 0 where nothing is asked.

    Args:
        model: gives the logits of each place.
        batch: the questions.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    training, rows = model.training, max(1, TOKENS_AT_ONCE // batch.inputs[0].numel())
    model.eval()
    try:
        with torch.inference_mode():
            parts = [_told(model, part, precision) for part in batch.split(rows)]
    finally:
        model.train(training)
    nats, right = (torch.cat(side) for side in zip(*parts, strict=True))
    return nats, right


def asked(batch: Batch) -> Bool[Tensor, "b *n"]:
    """Where something is asked."""
    return batch.targets != SILENT


def _told(model: nn.Module, batch: Batch, precision: str) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    batch = batch.to(device)
    with products(precision, device.type):
        logits = answer(model, batch)
    flat, targets = logits.float().flatten(0, -2), batch.targets
    nats = nn.functional.cross_entropy(flat, targets.flatten(), reduction="none", ignore_index=SILENT)
    return nats.view(targets.shape).cpu(), ((logits.argmax(-1) == targets) & asked(batch)).cpu()
