"""Phi."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import cut_rope_spec, spec_to_rope_parameters

MIXER = "softmax:variant.bias=true"


class Phi(DecoderLike):
    """Phi 1 to 2: RoPE on half of each head's channels, parallel attention and feed-forward after a shared norm.

    Source: Li et al. 2023, Textbooks Are All You Need II: phi-1.5 technical report, https://arxiv.org/abs/2309.05463.
    """

    model_type = "phi"
    base_class = "PhiModel"
    causal_lm_class = "PhiForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    token_classifier = "score"
    prefix = "model."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 51_200,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "rope_parameters": None,
        "partial_rotary_factor": 0.5,
        "qk_layernorm": False,
        "tie_word_embeddings": False,
        "token_classification_bias": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads, length = config["hidden_size"], config["num_attention_heads"], config["max_position_embeddings"]
        head_width = config["head_dim"] or width // heads
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=cut_rope_spec(config, head_width),
            mixer=_mixer(config["layer_norm_eps"], normed=config["qk_layernorm"]),
            max_length=length,
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="shared",
            feedforward=activation_kind(config, "hidden_act"),
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward", "head"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers = {_mixer(shape.norm_eps, normed=normed): normed for normed in (False, True)}
        width = shape.bindable_sizes["head_width"]
        usual = shape.mixer_spec == MIXER or width * shape.heads == shape.width
        need(
            shape.mixer_spec in mixers and shape.norm_position == "shared" and usual,
            f"a phi requires norm_position shared, and the mixer {' or '.join(mixers)} (the last with a head_width "
            "of width / heads)",
            f"got {shape.norm_position}, {shape.mixer_spec}, {width}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": activation_name(shape.feedforward),
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "rope_parameters": {"partial_rotary_factor": 1.0}
            | spec_to_rope_parameters(shape.scheme_spec, width, partial=True),
            "qk_layernorm": mixers[shape.mixer_spec],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *linear_rules("norm", "model.final_layernorm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.dense", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.fc1", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.fc2", bias=True),
        ]
        if shape.mixer_spec != MIXER:
            for x in "qk":
                rules += linear_rules(f"{here}.mixer.{x}_norm", f"{there}.self_attn.{x}_layernorm", bias=True)
        return [*rules, *self.head_rules(shape)]


def _mixer(norm_eps: float | None, *, normed: bool) -> str:
    """Return the mixer, with norms of queries and keys if set."""
    return f"{MIXER},variant.qk_norm=true,variant.qk_norm_kind=layer,variant.norm_eps={norm_eps}" if normed else MIXER
