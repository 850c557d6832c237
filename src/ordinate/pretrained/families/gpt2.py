"""GPT-2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    HF_ACTIVATIONS,
    Family,
    TensorRule,
    TransposedWeight,
    activation_kind,
    activation_name,
    linear_rules,
    need_settings,
)

MIXER = "softmax:variant.bias=true"


class Gpt2(Family):
    """GPT-2: learned absolute positions, pre-norm with LayerNorm, biases in every layer.

    Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners.
    """

    model_type = "gpt2"
    prefix = "transformer."
    # causal-mask buffers stored by older versions
    ignored_suffixes = ("attn.bias", "attn.masked_bias")
    defaults: ClassVar[Mapping[str, Any]] = {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "tie_word_embeddings": True,
    }

    def architecture(self, shape: Shape) -> str:
        return "GPT2LMHeadModel"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        need_settings(
            self, config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
        )
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["n_positions"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward=activation_kind(config["activation_function"], HF_ACTIVATIONS),
            hidden=config["n_inner"] or 4 * config["n_embd"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        came = f"got {shape.scheme}, {shape.mixer}"
        need(
            shape.scheme == "learned" and shape.mixer == MIXER,
            f"a gpt2 requires scheme learned and mixer {MIXER}",
            came,
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "n_positions": shape.max_length,
            "n_inner": shape.hidden_width,
            "layer_norm_epsilon": shape.norm_eps,
            "activation_function": activation_name(shape.feedforward),
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            TensorRule("schemes.0.table", ("transformer.wpe.weight",)),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.ln_2", bias=True),
            *linear_rules(f"{here}.mixer.project", f"{there}.attn.c_attn", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.c_proj", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", kind=TransposedWeight, bias=True),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]
