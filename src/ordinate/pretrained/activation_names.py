"""Names of activation functions in config.json, as transformers has them, and our kinds of feed-forward network."""

from collections.abc import Mapping
from typing import Any, Literal

from ordinate.core.checks import need, need_known
from ordinate.models.activation import LEARNED
from ordinate.models.feedforward import GATED, FeedForwardKind
from ordinate.ops.activation import ACTIVATIONS, Activation

HF_ACTIVATIONS: Mapping[str, Activation] = {
    **{name: name for name in ACTIVATIONS if name != "gelu_tanh"},
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python": "gelu",
    "swish": "silu",
}
"""Activation names of transformers, and ours; those with parameters of their own are missing."""
HF_LEARNED: Mapping[str, FeedForwardKind] = {**HF_ACTIVATIONS, **{name: name for name in LEARNED}}
"""The same with them, for families that read their tensors."""
_GATES: Mapping[Activation, FeedForwardKind] = {activation: gate for gate, activation in GATED.items()}
HF_GATES: Mapping[str, FeedForwardKind] = {name: _GATES[kind] for name, kind in HF_ACTIVATIONS.items()}
"""The same for families with a gated feed-forward."""


def activation_kind(
    config: Mapping[str, Any], key: str, known: Mapping[str, FeedForwardKind] | None = None
) -> FeedForwardKind:
    """Return the feed-forward kind for the activation that a key of config.json names in terms of transformers."""
    known = HF_ACTIVATIONS if known is None else known
    need_known(key, config[key], known)
    return known[config[key]]


def activation_name(
    kind: FeedForwardKind | Literal["none"], known: Mapping[str, FeedForwardKind] | None = None
) -> str:
    """Return the transformers name of a feed-forward kind's activation.

    Raises:
        ValueError: the family has no such feed-forward.
    """
    known = HF_ACTIVATIONS if known is None else known
    names: dict[str, str] = {}
    for theirs, ours in known.items():
        names.setdefault(ours, theirs)
    need(
        kind in names,
        f"the feedforward must be one that the family has: {', '.join(names)}",
        f"got {kind}",
        "choose one of them, or use save_pretrained",
    )
    return names[kind]
