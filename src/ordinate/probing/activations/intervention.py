"""Interventions: a model some of whose activations are replaced in every forward pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known
from ordinate.probing._adapter import (
    MASKED_SCORE,
    ForwardOutput,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    NotApplicable,
)
from ordinate.probing._attach import attach
from ordinate.probing.activations.names import (
    ACTIVATIONS,
    PAIRS,
    ROTATED,
    Activation,
    HookFunctions,
    check_indices,
    lacking_activation,
    missing_activation,
)
from ordinate.probing.activations.recording import Recording

Replacement = Tensor | Mapping[tuple[str, int], Tensor] | Callable[[Tensor], Tensor]
"""A tensor, a recording, or a function of the activation."""


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


def combined(first: Hooks, second: Hooks) -> HookFunctions:
    """Return the hooks of both; the second gets what the first leaves."""

    def both(name: str) -> Callable[..., Any]:
        one, other = getattr(first, name), getattr(second, name)

        def call(layer: int, *given: Any) -> Any:
            made = one(layer, *given)
            after = given if made is None else made if isinstance(made, tuple) else (made,)
            last = other(layer, *after)
            return made if last is None else last

        return call

    functions = {name: both(name) for name in first.overridden & second.overridden}
    for own in (first, second):
        functions |= {name: getattr(own, name) for name in own.overridden - functions.keys()}
    return HookFunctions(functions, skip_head=second.skip_head)


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
    return _Patched(subject, _Change(name, value, chosen, own, tokens))


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


@dataclass(eq=False)
class _Change:
    """One replaced activation.

    Args:
        name: its name.
        value: what replaces it.
        layers: the layers.
        heads: the heads; None: it has none.
        tokens: the tokens; None: all.
        rotated: layers that called the hook before RoPE.
        applied: layers in which it was replaced in the current pass.
    """

    name: str
    value: Replacement
    layers: list[int]
    heads: list[int] | None
    tokens: int | Sequence[int] | None
    rotated: set[int] = field(default_factory=set)
    applied: set[int] = field(default_factory=set)

    @property
    def kind(self) -> Activation:
        """The activation."""
        return ACTIVATIONS[self.name]

    @property
    def hooks(self) -> HookFunctions:
        """The hooks that replace it."""
        sites: dict[str, dict[str, Callable[..., Any]]] = {
            "resid_pre": {"residual": self._put},
            "resid_post": {"residual": lambda layer, x: self._put(layer - 1, x)},
            "attn_scores": {"attention_scores": self._scores},
            "pattern": {"attention_pattern": self._put},
            "z": {"head_output": self._put},
            "attn_out": {"attention_output": self._put},
            "v": {"qkv": self._qkv},
        }
        rope = {"qk_before_rope": self._before_rope, "qkv": self._qkv}
        return HookFunctions(sites.get(self.name, rope))

    def _before_rope(self, layer: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None:
        self.rotated.add(layer)
        new = None if self.name in ROTATED else self._put(layer, k if self.kind.of_keys else q)
        if new is None:
            return None
        return (q, new) if self.kind.of_keys else (new, k)

    def _qkv(self, layer: int, *qkv: Tensor) -> tuple[Tensor, ...] | None:
        turned = layer in self.rotated
        # of a layer with RoPE, q and k have been replaced before it
        if self.name != "v" and turned != (self.name in ROTATED):
            return None
        place = 2 if self.name == "v" else int(self.kind.of_keys)
        new = self._put(layer, qkv[place])
        return None if new is None else (*qkv[:place], new, *qkv[place + 1 :])

    def _scores(self, layer: int, scores: Tensor) -> Tensor | None:
        new = self._put(layer, scores)
        return None if new is None else torch.where(scores > MASKED_SCORE, new, scores)

    def _put(self, layer: int, x: Tensor) -> Tensor | None:
        if layer not in self.layers:
            return None
        self.applied.add(layer)
        place = self._place(x)
        old = x[place]
        new = self._replacement(layer, x, place)
        must = f"a replacement of {self.name} in layer {layer} must broadcast to {tuple(old.shape)}"
        fits = isinstance(new, Tensor) and _broadcasts(new, old)
        came = f"got {tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__}"
        need(fits, must, came, "give that shape, or one text in place of the batch")
        whole = x.clone()
        whole[place] = new.to(x)
        return whole

    def _replacement(self, layer: int, x: Tensor, place: tuple[Any, ...]) -> Any:
        if isinstance(self.value, Tensor):
            return self.value
        if not isinstance(self.value, Mapping):
            return self.value(x[place])
        held = self.value[self.name, layer]
        must = f"recorded {self.name} of layer {layer} must broadcast to {tuple(x.shape)}"
        need(_broadcasts(held, x), must, f"got {tuple(held.shape)}", "record as many tokens, of one text or as many")
        return held.expand_as(x)[place]

    def _place(self, x: Tensor) -> tuple[Any, ...]:
        """Index of the chosen part: (batch, heads, tokens) or (batch, tokens)."""
        axis = 2 if self.kind.has_heads else 1
        chosen = torch.tensor(check_indices("tokens", self.tokens, x.shape[axis]), device=x.device)
        if self.heads is None:
            return slice(None), chosen
        return slice(None), torch.tensor(self.heads, device=x.device)[:, None], chosen[None]


class _Patched(InterventionAdapter):
    """A model with one activation replaced.

    Args:
        subject: the model.
        change: the replacement.
    """

    def __init__(self, subject: ModelAdapter, change: _Change) -> None:
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


def _broadcasts(small: Tensor, large: Tensor) -> bool:
    sizes = zip(reversed(small.shape), reversed(large.shape), strict=False)
    return small.ndim <= large.ndim and all(one in (1, other) for one, other in sizes)
