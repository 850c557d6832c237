"""Persimmon."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import GroupedQKV, TensorRule, linear_rules, need_usual
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import cut_rope_spec, spec_to_rope_parameters

MIXER = "softmax:variant.bias=true"


class Persimmon(DecoderLike):
    """Persimmon: RoPE on half of each head's channels, LayerNorm, also of queries and keys, squared ReLU, biases.

    Source: Elsen et al. 2023, Releasing Persimmon-8B, https://www.adept.ai/blog/persimmon-8b.
    """

    model_type = "persimmon"
    base_class = "PersimmonModel"
    causal_lm_class = "PersimmonForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    token_classifier = "score"
    prefix = "model."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 262_144,
        "hidden_size": 4096,
        "intermediate_size": 16_384,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "hidden_act": "relu2",
        "max_position_embeddings": 16_384,
        "layer_norm_eps": 1e-5,
        "rope_parameters": None,
        "partial_rotary_factor": 0.5,
        "qk_layernorm": True,
        "tie_word_embeddings": False,
        "token_classification_bias": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads, eps = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
        # of another width of a head only the rotation would know
        need_usual(self, config, head_dim=width // heads)
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            scheme=cut_rope_spec(config, width // heads),
            mixer=_mixer(eps, normed=config["qk_layernorm"]),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=eps,
            feedforward=activation_kind(config, "hidden_act"),
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers = {_mixer(shape.norm_eps, normed=normed): normed for normed in (False, True)}
        need(
            shape.mixer_spec in mixers and shape.norm_position == "pre",
            f"a persimmon requires the mixer {' or '.join(mixers)}, and norm_position pre",
            f"got {shape.mixer_spec}, {shape.norm_position}",
            "use save_pretrained instead",
        )
        parameters = spec_to_rope_parameters(shape.scheme_spec, shape.bindable_sizes["head_width"], partial=True)
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "hidden_act": activation_name(shape.feedforward),
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "rope_parameters": {"partial_rotary_factor": 1.0} | parameters,
            "qk_layernorm": mixers[shape.mixer_spec],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        attention, inner = f"{there}.self_attn", f"{there}.mlp"
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *linear_rules("norm", "model.final_layernorm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear_rules(f"{here}.mixer.project", f"{attention}.query_key_value", kind=GroupedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{attention}.dense", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{inner}.dense_h_to_4h", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{inner}.dense_4h_to_h", bias=True),
        ]
        if shape.mixer_spec != MIXER:
            for x in "qk":
                rules += linear_rules(f"{here}.mixer.{x}_norm", f"{attention}.{x}_layernorm", bias=True)
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def _mixer(norm_eps: float | None, *, normed: bool) -> str:
    """Return the mixer, with norms of queries and keys if set."""
    return f"{MIXER},variant.qk_norm=true,variant.qk_norm_kind=layer,variant.norm_eps={norm_eps}" if normed else MIXER
