"""Interventions: a model some of whose activations are replaced in every forward pass."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known
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
        self.model, self.tokenizer = subject.model, subject.tokenizer

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

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass under the intervention."""
        return self.subject.forward(inputs, self.watch if watch is None else combined(self.watch, watch))

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
        change = self.change
        change.applied.clear()
        try:
            out = super().forward(inputs, watch)
        except NotApplicable as reason:
            raise missing_activation(self.subject, str(reason)) from None
        # a replacement that is never made must not pass for one without effect
        if lacking := [layer for layer in change.layers if layer not in change.applied]:
            raise lacking_activation(self.subject, change.name, lacking)
        return out
