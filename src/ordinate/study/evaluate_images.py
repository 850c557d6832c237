"""Evaluate an image classifier: accuracy by image size and by class."""

from typing import Any

from torch import nn

from ordinate.data.batch import Batch
from ordinate.data.tasks.images import Images
from ordinate.study.evaluate_task import accuracy_by
from ordinate.study.plan import Plan
from ordinate.study.statistics import accuracy_interval
from ordinate.training.prediction import has_target, is_correct


def evaluate_images(model: nn.Module, images: Images, plan: Plan) -> dict[str, Any]:
    """Evaluate on held-out images; returns `lengths`."""
    batch = images.all_images(count=plan.eval_samples)
    return {"lengths": [_size(model, batch, plan, times) for times in sorted(plan.eval_length_multiples)]}


def enlarge(batch: Batch, times: int) -> Batch:
    """Return the same images enlarged by an integer factor, with bilinear interpolation."""
    sides = [times * side for side in batch.inputs.shape[2:]]
    images = nn.functional.interpolate(batch.inputs, sides, mode="bilinear", align_corners=False)
    return Batch(images, batch.targets, batch.slices)


def _size(model: nn.Module, batch: Batch, plan: Plan, times: int) -> dict[str, Any]:
    row: dict[str, Any] = {"times": times, "length": times * batch.inputs.shape[2], "accuracy": None}
    try:
        right = is_correct(model, enlarge(batch, times), plan.precision)
    except ValueError as error:
        # some schemes and mixers support one image size only
        return {**row, "reason": str(error)}
    questions = has_target(batch)
    return {
        **row,
        "accuracy": float(right.double().mean()),
        "interval": accuracy_interval(right.double().numpy(), questions.double().numpy()),
        "right": right.long().tolist(),
        "asked": questions.long().tolist(),
        "slices": {name: accuracy_by(numbers, right, questions, None) for name, numbers in batch.slices.items()},
    }
