"""Evaluate an image classifier: accuracy by image size and by class."""

from typing import Any

from torch import nn

from ordinate.data.batch import Batch
from ordinate.data.tasks.images import Images
from ordinate.evaluation.prediction import has_target, is_correct
from ordinate.evaluation.quantity import ACCURACY
from ordinate.evaluation.settings import EvaluationSettings
from ordinate.evaluation.task import accuracy_by


def evaluate_images(model: nn.Module, images: Images, plan: EvaluationSettings) -> dict[str, Any]:
    """Evaluate on held-out images; returns `lengths`."""
    batch = images.all_images(count=plan.eval_samples)
    return {
        "lengths": [accuracy_at(model, batch, plan.precision, times) for times in sorted(plan.eval_length_multiples)]
    }


def enlarge(batch: Batch, times: int) -> Batch:
    """Return the same images enlarged by an integer factor, with bilinear interpolation."""
    sides = [times * side for side in batch.inputs.shape[2:]]
    images = nn.functional.interpolate(batch.inputs, sides, mode="bilinear", align_corners=False)
    return Batch(images, batch.targets, batch.slices)


def accuracy_at(model: nn.Module, batch: Batch, precision: str, times: int) -> dict[str, Any]:
    """Return the accuracy on images enlarged by a factor, or the reason why there is none.

    Args:
        model: returns the logits of the classes.
        batch: images of the trained size, with their classes.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
        times: the factor.
    """
    row: dict[str, Any] = {"times": times, "length": times * batch.inputs.shape[2], "accuracy": None}
    try:
        right = is_correct(model, enlarge(batch, times), precision)
    except ValueError as error:
        # some schemes and mixers support one image size only
        return {**row, "reason": str(error)}
    questions = has_target(batch)
    return {
        **row,
        "accuracy": float(right.double().mean()),
        "interval": ACCURACY.interval(right.double().numpy(), questions.double().numpy()),
        "right": right.long().tolist(),
        "asked": questions.long().tolist(),
        "slices": {name: accuracy_by(numbers, right, questions, None) for name, numbers in batch.slices.items()},
    }
