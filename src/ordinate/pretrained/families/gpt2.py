"""GPT-2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.pretrained._family import TransposedWeight
from ordinate.pretrained.gpt2_like import MIXER, Gpt2Like

SCALING = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")
CHOICES = ((True, False), (True, True), (False, False), (False, True))


class Gpt2(Gpt2Like):
    """GPT-2: learned absolute positions, pre-norm with LayerNorm, biases in every layer.

    Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners.
    """

    model_type = "gpt2"
    base_class = "GPT2Model"
    causal_lm_class = "GPT2LMHeadModel"
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gpt2Like.usual,
        "activation_function": "gelu_new",
        "scale_attn_by_inverse_layer_idx": False,
    }
    matrix = TransposedWeight
    projection = TransposedWeight

    def mixers(self, layers: int, head_width: int) -> Sequence[tuple[dict[str, bool], str]]:
        settings = [dict(zip(SCALING, choice, strict=True)) for choice in CHOICES]
        return [(told, _mixer(layers, head_width, **told)) for told in settings]


def _mixer(layers: int, head_width: int, *, scale_attn_weights: bool, scale_attn_by_inverse_layer_idx: bool) -> str:
    """Return the mixer: without the usual scale of the scores, or with one that falls with the depth, if set."""
    if scale_attn_weights and not scale_attn_by_inverse_layer_idx:
        return MIXER
    scale = head_width**-0.5 if scale_attn_weights else 1.0
    if not scale_attn_by_inverse_layer_idx:
        return f"{MIXER},variant.scale={scale}"
    return ",".join(f"{MIXER},variant.scale={scale / (layer + 1)}" for layer in range(layers))
