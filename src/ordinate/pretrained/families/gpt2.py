"""GPT-2."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    TensorRule,
    TransposedWeight,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.decoder_like import DecoderLike

MIXER = "softmax:variant.bias=true"
# parts of a layer that read the output of an encoder
CROSS_ATTENTION = tuple(
    f"{part}.{kind}"
    for part in ("crossattention.c_attn", "crossattention.q_attn", "crossattention.c_proj", "ln_cross_attn")
    for kind in ("weight", "bias")
)
SCALING = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")


class Gpt2(DecoderLike):
    """GPT-2: learned absolute positions, pre-norm with LayerNorm, biases in every layer.

    Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners.
    """

    model_type = "gpt2"
    base_class = "GPT2Model"
    causal_lm_class = "GPT2LMHeadModel"
    prefix = "transformer."
    # causal-mask buffers stored by older versions
    ignored_suffixes = ("attn.bias", "attn.masked_bias")
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say that cross-attention is left out: transformers computes it only from the output of an encoder."""
        if config["add_cross_attention"]:
            self.warning = "cross-attention is not loaded: it is used only together with an encoder"
        return dict(config)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        scaling = {name: bool(config[name]) for name in SCALING}
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme="learned",
            mixer=_mixer(config["n_layer"], config["n_embd"] // config["n_head"], **scaling),
            max_length=config["n_positions"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward=activation_kind(config, "activation_function"),
            hidden=4 * config["n_embd"] if config["n_inner"] is None else config["n_inner"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        width, choices = (
            shape.bindable_sizes["head_width"],
            ((True, False), (True, True), (False, False), (False, True)),
        )
        scalings = [dict(zip(SCALING, choice, strict=True)) for choice in choices]
        found = [scaling for scaling in scalings if shape.mixer_spec == _mixer(shape.layers, width, **scaling)]
        need(
            shape.scheme_spec == "learned" and len(found) > 0,
            f"a gpt2 requires scheme learned and mixer {MIXER}",
            f"got {shape.scheme_spec}, {shape.mixer_spec}",
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
            **found[0],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        return (*self.ignored_suffixes, *(CROSS_ATTENTION if self.settings.get("add_cross_attention") else ()))

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


def _mixer(layers: int, head_width: int, *, scale_attn_weights: bool, scale_attn_by_inverse_layer_idx: bool) -> str:
    """Return the mixer: without the usual scale of the scores, or with one that falls with the depth, if set."""
    if scale_attn_weights and not scale_attn_by_inverse_layer_idx:
        return MIXER
    scale = head_width**-0.5 if scale_attn_weights else 1.0
    if not scale_attn_by_inverse_layer_idx:
        return f"{MIXER},variant.scale={scale}"
    return ",".join(f"{MIXER},variant.scale={scale / (layer + 1)}" for layer in range(layers))
