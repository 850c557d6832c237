"""XGLM."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.fairseq_layers import fairseq_rules

MIXER = "softmax:variant.bias=true"
SCHEME = "sinusoidal:form=tensor2tensor,scale=1.0,position_offset=2"
# of an odd width
PADDED = f"{SCHEME},odd_width=zero_pad"
# the epsilon of its norms, which config.json does not have
EPS = 1e-5
# the first row of the sinusoids that a position takes
FIRST = 2
CROSS_ATTENTION = tuple(
    f"{part}.{kind}"
    for part in (*(f"encoder_attn.{name}_proj" for name in ("q", "k", "v", "out")), "encoder_attn_layer_norm")
    for kind in ("weight", "bias")
)


class Xglm(DecoderLike):
    """XGLM: GPT-2 with sinusoidal positions that count from 2, and token embeddings times the root of the width.

    Source: Lin et al. 2022, Few-shot Learning with Multilingual Language Models, https://arxiv.org/abs/2112.10668.
    """

    model_type = "xglm"
    base_class = "XGLMModel"
    causal_lm_class = "XGLMForCausalLM"
    # transformers has no other
    heads = ()
    prefix = "model."
    ignored_suffixes = ("embed_positions.weights",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 256_008,
        "max_position_embeddings": 2048,
        "d_model": 1024,
        "ffn_dim": 4096,
        "num_layers": 24,
        "attention_heads": 16,
        "activation_function": "gelu",
        "scale_embedding": True,
        "pad_token_id": 1,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say that cross-attention is left out: transformers computes it only from the output of an encoder."""
        if config["add_cross_attention"]:
            self.warning = "cross-attention is not loaded: it is used only together with an encoder"
        return dict(config)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, padding = config["d_model"], config["pad_token_id"]
        must = f"pad_token_id of an xglm must be below {FIRST}: transformers has zeros at the position of its number"
        need(padding is None or 0 <= padding < FIRST, must, f"got {padding}", "load another checkpoint")
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_layers"],
            heads=config["attention_heads"],
            scheme=_scheme(width),
            mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=EPS,
            feedforward=activation_kind(config, "activation_function"),
            hidden=config["ffn_dim"],
            bias=("norm", "feedforward"),
            embedding_scale=width**0.5 if config["scale_embedding"] else 1.0,
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        scheme = _scheme(shape.width)
        need(
            shape.scheme_spec == scheme and shape.mixer_spec == MIXER,
            f"an xglm requires scheme {scheme} and mixer {MIXER}",
            f"got {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "num_layers": shape.layers,
            "attention_heads": shape.heads,
            "ffn_dim": shape.hidden_width,
            "activation_function": activation_name(shape.feedforward),
            "max_position_embeddings": shape.max_length,
            "scale_embedding": shape.embedding_scale != 1,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        return (*self.ignored_suffixes, *(CROSS_ATTENTION if self.settings.get("add_cross_attention") else ()))

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *linear_rules("norm", "model.layer_norm", bias=True),
            *fairseq_rules("model.layers.{}"),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def _scheme(width: int) -> str:
    return PADDED if width % 2 else SCHEME
