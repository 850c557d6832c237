"""FLOP counter for training steps, and the number of steps of each model with matched FLOPs."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ordinate.data.batch import Batch
from ordinate.evaluation.prediction import batch_logits
from ordinate.models.registry import MODEL_KINDS
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape
from ordinate.ops.native.build import ENV_VARIABLE
from ordinate.study.data_source import source_of
from ordinate.study.model_sizing import REFERENCE, ModelSizing
from ordinate.study.plan import Plan

# this view lacks PyTorch's is_view flag
UNFLAGGED_VIEWS = (torch.ops.aten._unsafe_view,)


class FlopCounter(TorchDispatchMode):
    """Counts floating-point operations (FLOPs) while active.

    Matrix products and convolutions count two per multiply-add, a Fourier transform of n numbers 5 n log2 n, every
    other operation one per output element, and views none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Total number of operations."""
        return sum(self.counted.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute an operation and count it."""
        out = func(*args, **(kwargs or {}))
        self.counted[str(func.overloadpacket)] += self._cost(func, args, kwargs or {}, out)
        return out

    def _cost(self, func: Any, args: Any, kwargs: Any, out: Any) -> int:
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if func.overloadpacket in flop_registry:
            return int(flop_registry[func.overloadpacket](*args, **kwargs, out_val=out))
        if "fft" in func.overloadpacket.__name__:
            taken = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
            numbers = max(tensor.numel() for tensor in [*taken, *made])
            line = max(tensor.shape[dim] for tensor in [*taken, *made] for dim in args[1])
            return int(5 * numbers * max(1, (line - 1).bit_length()))
        if func.is_view or func.overloadpacket in UNFLAGGED_VIEWS:
            return 0
        return sum(tensor.numel() for tensor in made if tensor.is_floating_point() or tensor.is_complex())


def flops_per_sequence(plan: Plan, shape: Shape) -> int:
    """Return the FLOPs of a training step per sequence, forward and backward.

    Counted by running one step in PyTorch's elementary operations; native C++ kernels are counted as those they
    replace.

    Args:
        plan: gives the kind of model and the sequence length.
        shape: the model's shape.
    """
    with torch.random.fork_rng(devices=[]), _plain():
        torch.manual_seed(0)
        model = cast(nn.Module, MODEL_KINDS[plan.model].build(shape))
        with FlopCounter() as counter:
            batch_logits(model, _sequence(plan, shape)).float().logsumexp(-1).sum().backward()
            # counts are of shapes only, so any scalar of the output serves as loss
    return counter.total


def matched_steps(plan: Plan, sizing: ModelSizing) -> dict[str, int] | None:
    """Return the steps of each arm with matched FLOPs, by label; None if steps are equal.

    The model with softmax attention and without positions takes the plan's steps. Every other takes the number
    nearest to the same total, so that totals agree to half a step.

    Args:
        plan: the plan, resolved except for this field.
        sizing: gives the shape of each arm's model.
    """
    if plan.match != "flops":
        return None
    arms = {run.label: sizing.shape_of(run) for run in plan.runs_for_seed({}, 0)}
    reference = sizing.shape_of(REFERENCE)
    total_flops = plan.steps * flops_per_sequence(plan, reference)
    return {label: max(1, round(total_flops / flops_per_sequence(plan, shape))) for label, shape in arms.items()}


def _sequence(plan: Plan, shape: Shape) -> Batch:
    """A batch of one training sequence; its values do not matter."""
    if isinstance(shape, VisionShape):
        return Batch(torch.zeros(1, shape.channels, *shape.image), torch.zeros(1, dtype=torch.long))
    ids = torch.zeros(1, source_of(plan).sizes(plan, shape.vocabulary).training_length, dtype=torch.long)
    return Batch(ids, ids, source=ids if plan.model == "encoder-decoder" else None)


@contextmanager
def _plain() -> Iterator[None]:
    """Use elementary PyTorch operations only: native kernels, fused attention and oneDNN hide their FLOPs."""
    before, library = os.environ.get(ENV_VARIABLE), torch._C._get_mkldnn_enabled()
    os.environ[ENV_VARIABLE] = "off"
    # oneDNN would execute a whole recurrent network as one operation
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(library)
        os.environ.pop(ENV_VARIABLE)
        if before is not None:
            os.environ[ENV_VARIABLE] = before
