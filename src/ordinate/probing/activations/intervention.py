"""Interventions: a model some of whose activations are replaced in every forward pass."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known
from ordinate.core.shapes import Tokens
from ordinate.probing._adapter import (
    ForwardOutput,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    NotApplicable,
)
from ordinate.probing._attach import attach
from ordinate.probing.activations.change import Change, Replacement, combined
from ordinate.probing.activations.names import (
    ACTIVATIONS,
    PAIRS,
    check_indices,
    lacking_activation,
    missing_activation,
)
from ordinate.probing.activations.recording import Recording


class InterventionAdapter(ModelAdapter):
    """A model under a permanent intervention on its activations; further hooks see what it leaves.

    Args:
        subject: the model.
        watch: the hooks that intervene.
    """

    priority = 1_000_000

    def __init__(self, subject: ModelAdapter, watch: Hooks) -> None:
        self.subject, self.watch = subject, watch
        self.model, self.whole, self.tokenizer = subject.model, subject.whole, subject.tokenizer

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        """Always refuse: it wraps another subject."""
        return "it wraps another subject and adapts no model itself"

    @property
    def unchanged(self) -> ModelAdapter:
        return self.subject.unchanged

    @property
    def info(self) -> ModelInfo:
        return self.subject.info

    def seen_through(self, other: ModelAdapter) -> ModelAdapter:
        """Return another part of this model, under this intervention and those before it."""
        links = self.links()
        elsewhere = [link for link in links if link.info.kind != other.info.kind]
        seen: ModelAdapter = _OtherPart(other, elsewhere) if elsewhere else other
        for link in links:
            seen = seen if link in elsewhere else link.onto(seen)
        return seen

    def links(self) -> list["InterventionAdapter"]:
        """Return the interventions of which this is the last, each in its own part."""
        before = self.subject.links() if isinstance(self.subject, InterventionAdapter) else []
        return [*before, self]

    def onto(self, subject: ModelAdapter) -> "InterventionAdapter":
        """Return this intervention on another adapter of the same part."""
        own = copy(self)
        InterventionAdapter.__init__(own, subject, self.watch)
        return own

    def applying(self) -> AbstractContextManager[object]:
        """Context manager: one pass, after which it is checked that the intervention was made."""
        return nullcontext()

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass under the intervention."""
        return self.subject.forward(inputs, self.watch if watch is None else combined(self.watch, watch))

    def skip_connection(self, layer: int, x: Tokens) -> Tokens:
        return self.subject.skip_connection(layer, x)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        return self.subject.token_table()

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        return self.subject.position_table(length)

    def projection(self, layer: int) -> Any:
        return self.subject.projection(layer)

    def tokenize(self, text: str) -> Tensor:
        return self.subject.tokenize(text)


def patch(
    model: object,
    name: str,
    value: Replacement,
    *,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    tokens: int | Sequence[int] | None = None,
) -> ModelAdapter:
    """Return the model with an activation replaced in every forward pass; the model itself is not changed.

    What is returned can be recorded, probed, evaluated and patched again like any attached model. There is nothing to
    remove afterwards: the given model computes what it did before.

    Args:
        model: a model, its folder, or an adapter made by `attach`.
        name: one of resid_pre, q, k, rot_q, rot_k, v, attn_scores, pattern, z, attn_out, resid_post.
        value: a tensor that broadcasts to the chosen part; a recording, whose part is taken; or a function from the
            chosen part to its replacement.
        layers: indices from 0; None: all.
        heads: indices from 0 (of key heads for k, rot_k and v); None: all.
        tokens: indices from 0 (of queries for attn_scores and pattern); None: all.

    Raises:
        ValueError: an unknown name, layer or head; in a forward pass, a value that does not fit.
        NotApplicable: in a forward pass, if the model lacks the activation in a chosen layer.
    """
    subject = model if isinstance(model, ModelAdapter) else attach(model)
    need_known("activation", name, ACTIVATIONS)
    kind, facts = ACTIVATIONS[name], subject.info
    chosen = check_indices("layers", layers, facts.layers)
    need(kind.has_heads or heads is None, f"{name} has no heads", f"got heads {heads}", "leave heads out")
    own = check_indices("heads", heads, kind.heads(facts)) if kind.has_heads else None
    if isinstance(value, Mapping):
        lacking = [layer for layer in chosen if (name, layer) not in value]
        need(not lacking, f"the recording must have {name}", f"it lacks layers {lacking}", "record them")
    return _Patched(subject, Change(name, value, chosen, own, tokens))


def ablate(
    model: object,
    name: str,
    *,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    tokens: int | Sequence[int] | None = None,
    mean_of: Recording | None = None,
) -> ModelAdapter:
    """Return the model with an activation set to zero, or to its mean over the texts and tokens of a recording.

    Pairs that are masked stay masked where attn_scores is set. Arguments and errors are those of `patch`.

    Args:
        model: a model, its folder, or an adapter made by `attach`.
        name: name of the activation.
        layers: indices from 0; None: all.
        heads: indices from 0; None: all.
        tokens: indices from 0; None: all.
        mean_of: a recording of the same activation (mean ablation); None: zero.
    """
    need_known("activation", name, ACTIVATIONS)
    if mean_of is None:
        return patch(model, name, torch.zeros_like, layers=layers, heads=heads, tokens=tokens)
    kind = ACTIVATIONS[name]
    remedy = "patch it with recording[name, layer].mean(0, keepdim=True)"
    need(kind.axes != PAIRS, "a mean over tokens is of vectors", f"got {name}, which has pairs of tokens", remedy)
    need(not mean_of.reduced, "a mean is of whole activations", "got a reduced recording", "record it without reduce")
    axes = [kind.axes.index("text"), kind.axes.index("token")]
    means = {key: x.double().mean(axes, keepdim=True).to(x.dtype) for key, x in mean_of.items() if key[0] == name}
    return patch(model, name, means, layers=layers, heads=heads, tokens=tokens)


class _Patched(InterventionAdapter):
    """A model with one activation replaced.

    Args:
        subject: the model.
        change: the replacement.
    """

    def __init__(self, subject: ModelAdapter, change: Change) -> None:
        super().__init__(subject, change.hooks)
        self.change = change

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass with the replacement.

        Raises:
            ValueError: the replacement does not fit.
            NotApplicable: the model lacks the activation in a chosen layer.
        """
        with self.applying():
            return super().forward(inputs, watch)

    @contextmanager
    def applying(self) -> Iterator[None]:
        change = self.change
        change.applied.clear()
        try:
            yield
        except NotApplicable as reason:
            raise missing_activation(self.subject, str(reason)) from None
        # a replacement that is never made must not pass for one without effect
        if lacking := [layer for layer in change.layers if layer not in change.applied]:
            raise lacking_activation(self.subject, change.name, lacking)


class _OtherPart(InterventionAdapter):
    """A part of a model, under interventions on other parts.

    Args:
        subject: the part.
        elsewhere: the interventions.
    """

    def __init__(self, subject: ModelAdapter, elsewhere: list[InterventionAdapter]) -> None:
        super().__init__(subject, Hooks())
        self.elsewhere = elsewhere

    def links(self) -> list[InterventionAdapter]:
        return self.elsewhere

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass under the interventions."""
        with ExitStack() as changes:
            for link in self.elsewhere:
                changes.enter_context(link.applying())
            for kind in dict.fromkeys(link.info.kind for link in self.elsewhere):
                own = [link for link in self.elsewhere if link.info.kind == kind]
                both = reduce(combined, (link.watch for link in own))
                changes.enter_context(own[0].unchanged.installed(both))
            return self.subject.forward(inputs, watch)
