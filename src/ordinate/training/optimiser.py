"""AdamW, and a learning rate that rises and then falls."""

import math

import torch
from torch import nn


def learning_rate_at(step: int, *, highest: float, warmup: int, steps: int, floor: float = 0.1) -> float:
    """The learning rate of a step, counted from 0: rising for `warmup` steps, then a half cosine down.

        step < warmup:  highest * (step + 1) / warmup
        after:          highest * (floor + (1 - floor) * (1 + cos(pi * (step - warmup) / (steps - warmup))) / 2)

    Args:
        step: which step.
        highest: the top.
        warmup: steps of rising.
        steps: steps in all.
        floor: the share of the top that is left in the end.
    """
    if step < warmup:
        return highest * (step + 1) / warmup
    part = min(1.0, (step - warmup) / max(1, steps - warmup))
    return highest * (floor + (1 - floor) * (1 + math.cos(math.pi * part)) / 2)


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays the matrices of linear layers, and neither tables nor norms nor biases.

    Source: Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101; betas 0.9 and 0.95 as for GPT-3.
    """
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [p for p in parameters if id(p) in decayed and id(p) not in tables]
    others = [p for p in parameters if id(p) not in decayed or id(p) in tables]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)
