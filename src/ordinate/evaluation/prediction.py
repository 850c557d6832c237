"""Token losses and accuracy of a model's predictions on a batch."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.evaluation.losses import TOKENS_PER_FORWARD, precision_context


@runtime_checkable
class BatchModel(Protocol):
    """A model whose `batch_logits` takes a whole `Batch`, as Ordinate models do."""

    def batch_logits(self, batch: Batch) -> Float[Tensor, "b *n classes"]:
        """Return the logits of each position."""


def batch_logits(model: nn.Module, batch: Batch) -> Float[Tensor, "b *n classes"]:
    """Return the logits of each position of a batch; a model without such a method gets the inputs only."""
    given: object = model
    return given.batch_logits(batch) if isinstance(given, BatchModel) else model(batch.inputs)


def is_correct(model: nn.Module, batch: Batch, precision: str) -> Bool[Tensor, "b *n"]:
    """Return whether the argmax is the target at each position; False at IGNORE_INDEX positions.

    Args:
        model: returns the logits of each position.
        batch: inputs and targets.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    return token_losses(model, batch, precision)[1]


def token_losses(
    model: nn.Module, batch: Batch, precision: str
) -> tuple[Float[Tensor, "b *n"], Bool[Tensor, "b *n"]]:
    """Return the cross-entropy of each target [nats] and whether the argmax is correct; 0, False at IGNORE_INDEX.

    Args:
        model: returns the logits of each position.
        batch: inputs and targets.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    training, rows = model.training, max(1, TOKENS_PER_FORWARD // batch.inputs[0].numel())
    model.eval()
    try:
        with torch.inference_mode():
            parts = [_losses(model, part, precision) for part in batch.split(rows)]
    finally:
        model.train(training)
    nats, right = (torch.cat(side) for side in zip(*parts, strict=True))
    return nats, right


def has_target(batch: Batch) -> Bool[Tensor, "b *n"]:
    """Return the positions that have a target."""
    return batch.targets != IGNORE_INDEX


def _losses(model: nn.Module, batch: Batch, precision: str) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    batch = batch.to(device)
    with precision_context(precision, device.type):
        logits = batch_logits(model, batch)
    flat, targets = logits.float().flatten(0, -2), batch.targets
    nats = nn.functional.cross_entropy(flat, targets.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
    return nats.view(targets.shape).cpu(), ((logits.argmax(-1) == targets) & has_target(batch)).cpu()
