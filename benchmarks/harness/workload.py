"""Sizes and types that the benchmarks of attention and of mixers share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HEADS, HEAD_WIDTH, WIDTH = 8, 64, 512
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Work = tuple[Callable[[], Any], list[Tensor]]
"""A forward pass, which returns one tensor if gradients are wanted, and the tensors whose gradients those are."""
Step = Callable[[], object]
Row = dict[str, float]
"""Seconds or bytes of one contender, its ratio to the baseline and, if it has one, its goal."""
