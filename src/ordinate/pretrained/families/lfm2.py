"""LFM2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.lfm2_like import CONVOLUTION, Lfm2Like
from ordinate.pretrained.sliding_windows import FULL

ATTENDING = "full_attn_idxs"
"""The key of the layers with attention, counted from 0, where config.json has no types of layers."""
INNER = "intermediate_size"
"""The key of the hidden width, before it is adjusted."""
ADJUSTS, FACTOR, MULTIPLE = "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"
"""The keys of whether two thirds of that are taken, by what these are multiplied, and of what a multiple is made."""


class Lfm2(Lfm2Like):
    """LFM2: gated short convolutions in most layers, attention with QK-norm in the others.

    Source: Liquid AI 2025, LFM2 Technical Report, https://arxiv.org/abs/2511.23404.
    """

    model_type = "lfm2"
    base_class = "Lfm2Model"
    causal_lm_class = "Lfm2ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **Lfm2Like.usual,
        "hidden_size": 2560,
        INNER: 12_288,
        ADJUSTS: True,
        FACTOR: 1.0,
        MULTIPLE: 256,
        ATTENDING: None,
    }
    earlier: ClassVar[Mapping[str, str]] = {**Lfm2Like.earlier, "block_ff_dim": INNER}
    # tensors may be narrower
    optional_sizes = Lfm2Like.optional_sizes | {INNER}

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        return super().used_sizes(shape) - {INNER}

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        layers, given = range(config["num_hidden_layers"]), config[ATTENDING]
        attending = layers if given is None else given
        return [FULL if layer in attending else CONVOLUTION for layer in layers]

    def shape(self, config: Mapping[str, Any]) -> Shape:
        return super().shape(CheckpointConfig({**config, INNER: _hidden(config)}))

    def config(self, shape: Shape) -> dict[str, Any]:
        return {**super().config(shape), ADJUSTS: False}


def _hidden(config: Mapping[str, Any]) -> int:
    """Return the hidden width of the feed-forward; raise a ValueError if it has no channel."""
    if not config[ADJUSTS]:
        return config[INNER]
    width, multiple = int(2 * config[INNER] / 3) * config[FACTOR], config[MULTIPLE]
    must = f"two thirds of {INNER} times {FACTOR} must be a channel or more, and below 2^62"
    came = f"got {config[INNER]} and {config[FACTOR]}"
    need(1 <= width < 1 << 62, must, came, "correct them, or download the file again")
    # the next multiple
    return -(-int(width) // multiple) * multiple
