"""Names of activations, as in TransformerLens, their axes, and which of them a model has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ordinate.core.checks import need, need_known, need_whole, shown
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter, ModelInfo, NotApplicable

STREAM = ("text", "token", "column")
HEADS = ("text", "head", "token", "column")
PAIRS = ("text", "head", "query", "key")
# tokens of the pass that finds out which activations a model has
TRIED_LENGTH = 8

Site = Literal["residual", "qk_before_rope", "attention", "attention_output"]


@dataclass(frozen=True)
class Activation:
    """An activation that can be recorded and replaced.

    Args:
        axes: names of its axes.
        site: the hook that reads it.
        of: takes it from the record of a layer's attention; None: the hook gets it itself.
        of_keys: whether its heads are key heads, of which grouped-query attention has fewer.
    """

    axes: tuple[str, ...]
    site: Site
    of: Callable[[AttentionRecord], Tensor] | None = None
    of_keys: bool = False

    @property
    def has_heads(self) -> bool:
        """Whether it has an axis of heads."""
        return "head" in self.axes

    def heads(self, facts: ModelInfo) -> int:
        """Number of its heads in a model."""
        return facts.kv_heads if self.of_keys else facts.heads


ACTIVATIONS: Mapping[str, Activation] = {
    "resid_pre": Activation(STREAM, "residual"),
    "q": Activation(HEADS, "qk_before_rope", lambda seen: seen.q),
    "k": Activation(HEADS, "qk_before_rope", lambda seen: seen.k, of_keys=True),
    "rot_q": Activation(HEADS, "attention", lambda seen: seen.q),
    "rot_k": Activation(HEADS, "attention", lambda seen: seen.k, of_keys=True),
    "v": Activation(HEADS, "attention", lambda seen: seen.v, of_keys=True),
    "attn_scores": Activation(PAIRS, "attention", lambda seen: seen.scores),
    "pattern": Activation(PAIRS, "attention", lambda seen: seen.pattern),
    "z": Activation(HEADS, "attention", lambda seen: seen.out),
    "attn_out": Activation(STREAM, "attention_output"),
    "resid_post": Activation(STREAM, "residual"),
}
"""Every activation by its name.

`q` and `k` are before RoPE, `rot_q` and `rot_k` after it, which only layers with RoPE have. `attn_scores` is the
input of the softmax, masked pairs included, `pattern` its output, `z` the output of each head before W_O, `attn_out`
what attention adds to the residual stream. resid_pre + attn_out is what TransformerLens calls resid_mid.
"""
ROTATED = ("rot_q", "rot_k")


class HookFunctions(Hooks):
    """Hooks from functions: only those given are overridden.

    Args:
        functions: by the name of the hook, from layer and activation.
        skip_head: whether no logits are needed.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], *, skip_head: bool = False) -> None:
        self.skip_head = skip_head
        for name, function in functions.items():
            setattr(self, name, function)


def check_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; raise for an unknown one."""
    listed = (names,) if isinstance(names, str) else tuple(names)
    need(bool(listed), "activations are given by name", "got none", f"give some of {', '.join(ACTIVATIONS)}")
    for name in listed:
        need_known("activation", name, ACTIVATIONS)
    return listed


def check_indices(what: str, given: Any, count: int) -> list[int]:
    """Return layers, heads or tokens as a list of indices from 0; None: all. Negative ones count from the end."""
    if given is None:
        return list(range(count))
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    need(bool(listed), f"{what} must be chosen", "got none", f"give some of 0 to {count - 1}, or None for all")
    for index in listed:
        need_whole(what, index)
        need(-count <= index < count, f"{what} are 0 to {count - 1}", f"got {shown(index)}", "give one of these")
    return [int(index) % count for index in listed]


def activation_names(model: ModelAdapter) -> dict[str, list[int]]:
    """Return the activations that a model has, each with its layers, found by short forward passes."""
    # a replacement may not fit the texts of these passes
    plain = model.unchanged
    stream = list(range(plain.info.layers)) if _called(plain, "residual") else []
    attending = _called(plain, "attention")
    rotated = _called(plain, "qk_before_rope") if attending else []
    found: dict[str, list[int]] = {}
    for name, activation in ACTIVATIONS.items():
        if activation.of is not None:
            found[name] = rotated if name in ROTATED else attending
        else:
            found[name] = stream if activation.site == "residual" else _called(plain, activation.site)
    return {name: own for name, own in found.items() if own}


def lacking_activation(model: ModelAdapter, name: str, layers: Sequence[int]) -> NotApplicable:
    """Return the error for an activation that a model lacks in these layers, with what it has."""
    return missing_activation(model, f"there is no {name} in layer {', '.join(map(str, layers))}")


def missing_activation(model: ModelAdapter, reason: str) -> NotApplicable:
    """Return the error for activations that cannot be had: why, and what the model has."""
    every = list(range(model.info.layers))
    there = (
        name if own == every else f"{name} (layer {', '.join(map(str, own))})"
        for name, own in activation_names(model).items()
    )
    return NotApplicable(f"{reason}; {model.info.name} has: {', '.join(there) or 'none'}; choose among these")


def _called(model: ModelAdapter, hook: str) -> list[int]:
    """Return the layers that call a hook in a short pass; none if the model refuses it."""
    seen: set[int] = set()

    def note(layer: int, *_: Any) -> None:
        seen.add(layer)

    try:
        model.forward(_example(model.info), HookFunctions({hook: note}, skip_head=True))
    except NotApplicable:
        return []
    return sorted(seen)


def _example(facts: ModelInfo) -> Inputs:
    if facts.image is not None:
        return Inputs(images=torch.zeros(1, *facts.image, dtype=facts.dtype))
    source = torch.arange(TRIED_LENGTH)[None] % facts.source_vocabulary if facts.source_vocabulary else None
    return Inputs(torch.arange(TRIED_LENGTH)[None] % facts.vocabulary, source=source)
