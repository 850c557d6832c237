"""Which of a task's questions a model answers rightly."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.task import SILENT, Batch
from ordinate.training.evaluate import TOKENS_AT_ONCE, products


def answered(model: nn.Module, batch: Batch, precision: str) -> Bool[Tensor, "b n"]:
    """Where the likeliest token is the answer; False where nothing is asked.

    Args:
        model: gives the logits of each place.
        batch: the questions.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    training, rows = model.training, max(1, TOKENS_AT_ONCE // batch.inputs.shape[1])
    model.eval()
    try:
        with torch.inference_mode():
            said = torch.cat([_said(model, inputs, precision) for inputs in batch.inputs.split(rows)])
    finally:
        model.train(training)
    return (said == batch.targets) & asked(batch)


def asked(batch: Batch) -> Bool[Tensor, "b n"]:
    """Where something is asked."""
    return batch.targets != SILENT


def _said(model: nn.Module, inputs: Tensor, precision: str) -> Tensor:
    device = next(model.parameters()).device
    with products(precision, device.type):
        logits: Float[Tensor, "b n vocabulary"] = model(inputs.to(device))
    return logits.argmax(-1).cpu()
