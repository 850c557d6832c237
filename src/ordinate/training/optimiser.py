"""AdamW and the learning-rate schedule: linear warm-up, then cosine decay."""

import math

import torch
from torch import nn


def learning_rate_at(step: int, *, peak: float, warmup_steps: int, steps: int, final_fraction: float = 0.1) -> float:
    """Return the learning rate of a step, counted from 0: linear warm-up, then cosine decay.

        step < w:  peak * (step + 1) / w,  w = warmup_steps
        after:     peak * (f + (1 - f) * (1 + cos(pi * (step - w) / (steps - w))) / 2),  f = final_fraction

    Args:
        step: the step.
        peak: peak learning rate.
        warmup_steps: warm-up steps.
        steps: total steps.
        final_fraction: final learning rate as a fraction of the peak.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    part = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    return peak * (final_fraction + (1 - final_fraction) * (1 + math.cos(math.pi * part)) / 2)


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW with weight decay on the weights of linear layers only, not on embeddings, norms or biases.

    Source: Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101; betas 0.9 and 0.95 as for GPT-3.
    """
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    # a head tied to the embedding is not decayed either
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [p for p in parameters if id(p) in decayed and id(p) not in tables]
    others = [p for p in parameters if id(p) not in decayed or id(p) in tables]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)
