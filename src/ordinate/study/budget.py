"""Equal compute: the operations of a training step, counted, and the steps that they leave to each model."""

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

from ordinate.batch import Batch
from ordinate.models.kinds import KINDS
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape
from ordinate.native.build import SWITCH
from ordinate.study.model import shape_of
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.source import source_of
from ordinate.training.answers import answer

# a view that PyTorch does not count among its own, since what it looks at is used no more
VIEWS = (torch.ops.aten._unsafe_view,)


class Operations(TorchDispatchMode):
    """Counts floating-point operations while it is entered.

    Products of matrices and convolutions count two for each multiplication and addition, a Fourier transform of n
    numbers 5 n log2 n, everything else one for each number that it makes. What only looks at numbers in another way
    counts nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counted.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation out, and count it."""
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
        if func.is_view or func.overloadpacket in VIEWS:
            return 0
        return sum(tensor.numel() for tensor in made if tensor.is_floating_point() or tensor.is_complex())


def operations(plan: Plan, shape: Shape) -> int:
    """Floating-point operations of a training step for each sequence, forwards and backwards.

    Counted by carrying out one, in PyTorch's own operations: what runs in C++ here is counted as what it stands for.

    Args:
        plan: the kind of model, and how long a sequence is.
        shape: the sizes of the model.
    """
    with torch.random.fork_rng(devices=[]), _plain():
        torch.manual_seed(0)
        model = cast(nn.Module, KINDS[plan.model].build(shape))
        with Operations() as counter:
            answer(model, _sequence(plan, shape)).float().logsumexp(-1).sum().backward()
    return counter.total


def budgets(plan: Plan, vocabulary: int) -> dict[str, int] | None:
    """The steps of each that is compared, where compute is equal; None where steps are.

    The model with softmax and without positions takes the plan's steps. Every other takes as many as come nearest to
    the same operations, so that all are equal to half a step of their own.

    Args:
        plan: settled but for this.
        vocabulary: how many different tokens there are, or a number to try shapes with.
    """
    if plan.equal != "compute":
        return None
    plain = Run(label="", scheme="none", mixer="softmax", seed=0)
    whole = plan.steps * operations(plan, shape_of(plan, plain, vocabulary))
    return {
        run.label: max(1, round(whole / operations(plan, shape_of(plan, run, vocabulary))))
        for run in plan.own_runs({}, 0)
    }


def _sequence(plan: Plan, shape: Shape) -> Batch:
    """One of the sizes that are trained on; what stands in it costs nothing."""
    if isinstance(shape, VisionShape):
        return Batch(torch.zeros(1, shape.channels, *shape.image), torch.zeros(1, dtype=torch.long))
    ids = torch.zeros(1, source_of(plan).sizes(plan, shape.vocabulary).trained, dtype=torch.long)
    return Batch(ids, ids, source=ids if plan.model == "encoder-decoder" else None)


@contextmanager
def _plain() -> Iterator[None]:
    """Everything in PyTorch's own small operations, which can be counted."""
    before, library = os.environ.get(SWITCH), torch._C._get_mkldnn_enabled()
    os.environ[SWITCH] = "off"
    # which would carry out a recurrent network as one operation
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(library)
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before
