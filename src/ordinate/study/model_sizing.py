"""Model shape of a run, with the feed-forward width chosen so that parameter counts match."""

import torch
from torch import nn

from ordinate.core.checks import need
from ordinate.mixers._mixer import Mixer
from ordinate.models.registry import MODEL_KINDS, Model
from ordinate.models.shape import Shape
from ordinate.schemes._scheme import Scheme
from ordinate.study.data_source import DataSizes, source_of
from ordinate.study.initial_model import adapted_shape
from ordinate.study.plan import Plan
from ordinate.study.run import Run


def shape_of(plan: Plan, run: Run, vocabulary: int) -> Shape:
    """Return the shape of this run's model.

    With `match="params"` the feed-forward width is adjusted until the model has as many trainable parameters as
    the one with softmax attention and without positions. Only parameters that training can reach are counted: of a
    table of position embeddings, the rows within the training length.

    Raises:
        ValueError: an unknown scheme, mixer or option; sizes that do not fit; a mixer that does not support the
            scheme.
    """
    if plan.base is not None:
        shape = adapted_shape(plan, run)
        count_parameters(plan, shape)
        return shape
    sizes = source_of(plan).sizes(plan, vocabulary)
    shape = _shape(plan, run, sizes, sizes.longest_length, None)
    if plan.match != "params":
        count_parameters(plan, shape)
        return shape
    reference = run.model_copy(update={"scheme": "none", "mixer": "softmax"})
    target = count_parameters(plan, _shape(plan, reference, sizes, sizes.training_length, None))

    def trained(hidden: int) -> int:
        return count_parameters(plan, _shape(plan, run, sizes, sizes.training_length, hidden))

    # the count is linear in the feed-forward width, so two evaluations give the width that is nearest to the goal
    per_column = trained(2) - trained(1)
    hidden = max(1, 1 + round((target - trained(1)) / per_column))
    need(
        abs(trained(hidden) - target) <= per_column,
        "schemes and mixers must leave parameters for the feed-forward network",
        f"{run.label} alone has more than the whole reference model (softmax, no positions; {target} parameters)",
        "give a larger --width, or --match shape",
    )
    return _shape(plan, run, sizes, sizes.longest_length, hidden)


def count_parameters(plan: Plan, shape: Shape) -> int:
    """Return the number of parameters of a model of this shape, built on the meta device without allocation."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in MODEL_KINDS[plan.model].build(shape).parameters())


def parameter_counts(plan: Plan, run: Run, shape: Shape, model: Model) -> dict[str, object]:
    """Parameter counts of a run for the report."""
    sizes = source_of(plan).sizes(plan, shape.vocabulary)
    short = shape if plan.base else _shape(plan, run, sizes, sizes.training_length, shape.hidden)
    total, trained = sum(p.numel() for p in model.parameters()), count_parameters(plan, short)
    note = "" if total == trained else f"{total - trained} parameters serve lengths beyond the trained one only"
    return {
        "total": total,
        "trained": trained,
        "scheme": _held(model, Scheme),
        "mixer": _held(model, Mixer),
        "feedforward": shape.hidden_width,
        "note": note,
    }


def _held(model: Model, kind: type[nn.Module]) -> int:
    """Number of parameters in the modules of a kind; shared parameters count once."""
    modules = [module for module in model.modules() if isinstance(module, kind)]
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def _shape(plan: Plan, run: Run, sizes: DataSizes, max_length: int, hidden: int | None) -> Shape:
    return MODEL_KINDS[plan.model].shape(
        **sizes.shape_fields,
        width=plan.width,
        layers=plan.layers,
        heads=plan.heads,
        kv_heads=plan.kv_heads,
        scheme=run.scheme,
        mixer=run.mixer,
        max_length=max_length,
        norm=plan.norm,
        feedforward=plan.feedforward,
        hidden=hidden,
        dropout=plan.dropout,
    )
