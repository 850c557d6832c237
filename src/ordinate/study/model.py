"""The model of a run, with as many parameters as every other run's."""

from typing import cast

import torch

from ordinate.checks import need
from ordinate.models.block import Block
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.study.plan import Plan, Run
from ordinate.study.source import longest


def shape_of(plan: Plan, run: Run, vocabulary: int) -> Shape:
    """The sizes of this run's model.

    Under `equal="parameters"` the feed-forward is made narrower or wider until the model trains as many parameters as
    the one with softmax attention and without positions. Counted are those that training can reach: of a table of
    positions, the rows within the trained length.

    Raises:
        ValueError: a scheme, mixer or option that does not exist, sizes that do not fit, a mixer that does not honour
            the scheme.
    """
    shape = _shape(plan, run, vocabulary, longest(plan), None)
    if plan.equal == "shape":
        count(shape)
        return shape
    plain = run.model_copy(update={"scheme": "none", "mixer": "softmax"})
    goal = count(_shape(plan, plain, vocabulary, plan.length, None))

    def trained(hidden: int) -> int:
        return count(_shape(plan, run, vocabulary, plan.length, hidden))

    one = trained(2) - trained(1)
    hidden = max(1, 1 + round((goal - trained(1)) / one))
    need(
        abs(trained(hidden) - goal) <= one,
        "schemes and mixers must fit into the parameters of the model with softmax and without positions",
        f"{run.label} alone brings more than the feed-forward can give ({goal} parameters in all)",
        "give a larger width, or --equal shape",
    )
    return _shape(plan, run, vocabulary, longest(plan), hidden)


def count(shape: Shape) -> int:
    """How many parameters a model of this shape has; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Decoder(shape).parameters())


def parameters(plan: Plan, run: Run, shape: Shape, model: Decoder) -> dict[str, object]:
    """What the report says about the parameters of a run."""
    short = _shape(plan, run, shape.vocabulary, plan.length, shape.hidden)
    total, trained = sum(p.numel() for p in model.parameters()), count(short)
    note = "" if total == trained else f"{total - trained} parameters serve lengths beyond the trained one only"
    return {
        "total": total,
        "trained": trained,
        "scheme": sum(p.numel() for p in model.schemes.parameters()),
        "mixer": sum(p.numel() for block in model.blocks for p in cast(Block, block).mixer.parameters()),
        "feedforward": shape.hidden_width,
        "note": note,
    }


def _shape(plan: Plan, run: Run, vocabulary: int, max_length: int, hidden: int | None) -> Shape:
    return Shape(
        vocabulary=vocabulary,
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
