"""Everything that a study measures of a model that looks at images."""

from typing import Any

from torch import nn

from ordinate.batch import Batch
from ordinate.study.answers import by_number
from ordinate.study.plan import Plan
from ordinate.study.statistics import share_interval
from ordinate.tasks.images import Images
from ordinate.training.answers import answered, asked


def measure_seen(model: nn.Module, images: Images, plan: Plan) -> dict[str, Any]:
    """The section of a result that needs the trained model: accuracy at each size, and by class."""
    batch = images.every(count=plan.windows)
    return {"lengths": [_size(model, batch, plan, times) for times in sorted(plan.multiples)]}


def larger(batch: Batch, times: int) -> Batch:
    """The same images with sides so many times as long, what is between pixels drawn between them."""
    sides = [times * side for side in batch.inputs.shape[2:]]
    images = nn.functional.interpolate(batch.inputs, sides, mode="bilinear", align_corners=False)
    return Batch(images, batch.targets, batch.slices)


def _size(model: nn.Module, batch: Batch, plan: Plan, times: int) -> dict[str, Any]:
    row: dict[str, Any] = {"times": times, "length": times * batch.inputs.shape[2], "accuracy": None}
    try:
        right = answered(model, larger(batch, times), plan.precision)
    except ValueError as error:
        # a scheme or a mixer may serve images of one size only
        return {**row, "reason": str(error)}
    questions = asked(batch)
    return {
        **row,
        "accuracy": float(right.double().mean()),
        "interval": share_interval(right.double().numpy(), questions.double().numpy()),
        "right": right.long().tolist(),
        "asked": questions.long().tolist(),
        "slices": {name: by_number(numbers, right, questions, None) for name, numbers in batch.slices.items()},
    }
