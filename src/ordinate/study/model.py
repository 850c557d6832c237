"""The model of a run, with as many parameters as every other run's."""

import torch
from torch import nn

from ordinate.checks import need
from ordinate.mixer import Mixer
from ordinate.models.kinds import KINDS, Model
from ordinate.models.shape import Shape
from ordinate.scheme import Scheme
from ordinate.study.beginning import new_shape
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.source import Sizes, source_of


def shape_of(plan: Plan, run: Run, vocabulary: int) -> Shape:
    """The sizes of this run's model.

    Under `equal="parameters"` the feed-forward is made narrower or wider until the model trains as many parameters as
    the one with softmax attention and without positions. Counted are those that training can reach: of a table of
    positions, the rows within the trained length.

    Raises:
        ValueError: a scheme, mixer or option that does not exist, sizes that do not fit, a mixer that does not honour
            the scheme.
    """
    if plan.base is not None:
        shape = new_shape(plan, run)
        count(plan, shape)
        return shape
    sizes = source_of(plan).sizes(plan, vocabulary)
    shape = _shape(plan, run, sizes, sizes.longest, None)
    if plan.equal != "parameters":
        count(plan, shape)
        return shape
    plain = run.model_copy(update={"scheme": "none", "mixer": "softmax"})
    goal = count(plan, _shape(plan, plain, sizes, sizes.trained, None))

    def trained(hidden: int) -> int:
        return count(plan, _shape(plan, run, sizes, sizes.trained, hidden))

    one = trained(2) - trained(1)
    hidden = max(1, 1 + round((goal - trained(1)) / one))
    need(
        abs(trained(hidden) - goal) <= one,
        "schemes and mixers must fit into the parameters of the model with softmax and without positions",
        f"{run.label} alone brings more than the feed-forward can give ({goal} parameters in all)",
        "give a larger width, or --equal shape",
    )
    return _shape(plan, run, sizes, sizes.longest, hidden)


def count(plan: Plan, shape: Shape) -> int:
    """How many parameters a model of this shape has; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in KINDS[plan.model].build(shape).parameters())


def parameters(plan: Plan, run: Run, shape: Shape, model: Model) -> dict[str, object]:
    """What the report says about the parameters of a run."""
    sizes = source_of(plan).sizes(plan, shape.vocabulary)
    short = shape if plan.base else _shape(plan, run, sizes, sizes.trained, shape.hidden)
    total, trained = sum(p.numel() for p in model.parameters()), count(plan, short)
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
    """How many parameters the modules of a kind hold, each counted once."""
    modules = [module for module in model.modules() if isinstance(module, kind)]
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def _shape(plan: Plan, run: Run, sizes: Sizes, max_length: int, hidden: int | None) -> Shape:
    return KINDS[plan.model].shape(
        **sizes.fields,
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
