"""The short convolutions of recurrent mixers in checkpoints: their filters, and the function behind them."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from ordinate.core.checks import need, shown
from ordinate.models.feedforward import GATED
from ordinate.ops.activation import NOT_ZERO_AT_ZERO, Activation
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.activation_names import activation_kind
from ordinate.pretrained.grouped_rows import ChannelFilters, StackedFilters
from ordinate.pretrained.llama_like import LlamaLike

WHOLE = "whole_filters"
"""The setting of whether a checkpoint has one tensor of all filters of a mixer."""


def whole_filters(names: Collection[str]) -> dict[str, bool]:
    """Read from the names of the tensors whether one is of the filters of queries, keys and values."""
    return {WHOLE: any(name.endswith(".conv1d.weight") for name in names)}


def filter_rule(ours: str, there: str, rows: tuple[int, ...], *, whole: bool) -> TensorRule:
    """Return the tensor mapping of the filters of queries, keys and values.

    Args:
        ours: name of the tensor of all of them in our model.
        there: name of the mixer in the checkpoint.
        rows: channels of each.
        whole: whether the checkpoint has one tensor of them.
    """
    if whole:
        return ChannelFilters(ours, (f"{there}.conv1d.weight",))
    return StackedFilters(ours, tuple(f"{there}.{part}_conv1d.weight" for part in "qkv"), rows)


def filter_activation(family: LlamaLike, config: Mapping[str, Any]) -> Activation:
    """Return the function behind the convolution, that of the feed-forward.

    Raises:
        ValueError: an unknown activation function, or one that does not take 0 to 0.
    """
    key = family.activation_key
    activation = GATED[cast(Any, activation_kind(config, key, family.gates))]
    must = f"{key} of a {family.model_type} must take 0 to 0: padding would change its texts"
    need(activation not in NOT_ZERO_AT_ZERO, must, f"got {shown(config[key])}", "load another checkpoint")
    return activation
