"""Model shape of a run, with the feed-forward width chosen so that parameter counts match."""

from dataclasses import replace
from functools import cached_property

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
from ordinate.study.token_embeddings import with_token_embeddings

# the run whose number of parameters, or of FLOPs, the others match
REFERENCE = Run(label="", scheme="none", mixer="softmax", seed=0)


class ModelSizing:
    """Sizes the models of a plan's runs; the model of each distinct shape is built only once.

    With `match="params"` the feed-forward width is adjusted until the model has as many parameters as the one with
    softmax attention and without positions. Of a table of position embeddings only the rows within the training
    length are counted; constants, such as the random directions of performer, are.

    Args:
        plan: sizes, data and matching. Its schemes and mixers are not read, only those of the runs.
        vocabulary: vocabulary size, or an estimate.
    """

    def __init__(self, plan: Plan, vocabulary: int) -> None:
        self.plan, self.vocabulary = plan, vocabulary
        self._counts: dict[tuple[str, str, int, int | None], int] = {}

    def shape_of(self, run: Run) -> Shape:
        """Return the shape of this run's model.

        Raises:
            ValueError: an unknown scheme, mixer or option; sizes that do not fit; a mixer that does not support the
                scheme.
        """
        if self.plan.base is not None:
            shape = adapted_shape(self.plan, run)
            count_parameters(self.plan, shape)
            return shape
        longest, hidden = self._sizes.longest_length, None
        if self.plan.match == "params":
            hidden = self._matched_width(run)
        else:
            self._count(run, longest, None)
        return with_token_embeddings(_shape(self.plan, run, self._sizes, longest, hidden), self.plan)

    def _matched_width(self, run: Run) -> int:
        """Feed-forward width with which the model has as many parameters as the reference."""
        trained = self._sizes.training_length
        target, narrowest = self._count(REFERENCE, trained, None), self._count(run, trained, 1)
        # the count is linear in the feed-forward width, and a column has as many parameters in every run
        per_column = self._count(REFERENCE, trained, 2) - self._count(REFERENCE, trained, 1)
        hidden = max(1, 1 + round((target - narrowest) / per_column))
        need(
            abs(narrowest + (hidden - 1) * per_column - target) <= per_column,
            "schemes and mixers must leave parameters for the feed-forward network",
            f"{run.label} alone has more than the whole reference model (softmax, no positions; {target} parameters)",
            "give a larger --width, or --match shape",
        )
        return hidden

    @property
    def largest(self) -> int:
        """The largest number of parameters among the models that were sized; 0 for those of a trained model."""
        return max(self._counts.values(), default=0)

    @cached_property
    def _sizes(self) -> DataSizes:
        return source_of(self.plan).sizes(self.plan, self.vocabulary)

    def _count(self, run: Run, max_length: int, hidden: int | None) -> int:
        """Number of parameters of a run's model with this feed-forward width; counted at the first call."""
        key = run.scheme, run.mixer, max_length, hidden
        if key not in self._counts:
            self._counts[key] = count_parameters(self.plan, _shape(self.plan, run, self._sizes, max_length, hidden))
        return self._counts[key]


def shape_of(plan: Plan, run: Run, vocabulary: int) -> Shape:
    """Return the shape of one run's model; see `ModelSizing`."""
    return ModelSizing(plan, vocabulary).shape_of(run)


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
    made = MODEL_KINDS[plan.model].shape(
        **sizes.shape_fields,
        width=plan.width,
        layers=plan.layers,
        heads=plan.heads,
        scheme=run.scheme,
        mixer=run.mixer,
        max_length=max_length,
        norm=plan.norm,
        feedforward=plan.feedforward,
        hidden=hidden,
        dropout=plan.dropout,
    )
    # a mixer without key and value heads of its own, or with a number of its own, is compared as it is
    shared = plan.kv_heads is not None and made.takes_kv_heads(plan.kv_heads)
    return replace(made, kv_heads=plan.kv_heads) if shared else made
