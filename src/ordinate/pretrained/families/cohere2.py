"""Cohere 2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    HF_GATES,
    StackedPair,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import (
    DEFAULT_THETA,
    NONE,
    interleaved,
    rope_parameters,
    rope_spec,
    rotating_layers_config,
)
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows

BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class Cohere2(DecoderLike):
    """Cohere 2 (Command R7B and A): RoPE in layers with a sliding window and none in the others.

    Attention and feed-forward are parallel, after a shared LayerNorm; the logits are scaled.

    Source: Cohere 2025, Command A, https://arxiv.org/abs/2504.00698; Yang et al. 2025,
        https://arxiv.org/abs/2501.18795.
    """

    model_type = "cohere2"
    base_class = "Cohere2Model"
    causal_lm_class = "Cohere2ForCausalLM"
    # transformers has no other heads
    heads = ()
    prefix = "model."
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 256_000,
        "hidden_size": 8192,
        "intermediate_size": 22_528,
        "logit_scale": 0.0625,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 0,
        "rope_parameters": None,
        "attention_bias": False,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "layer_types": None,
        "tie_word_embeddings": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads, length = config["hidden_size"], config["num_attention_heads"], config["max_position_embeddings"]
        windows, head_width = layer_windows(every_nth_whole(config)), config["head_dim"] or width // heads
        rope = interleaved(rope_spec(rope_parameters(config), head_width, length))
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=",".join(NONE if window is None else rope for window in windows),
            mixer=BIASED if config["attention_bias"] else PLAIN,
            sliding_windows=windows,
            max_length=length,
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="shared",
            feedforward=activation_kind(config, "hidden_act", HF_GATES),
            hidden=config["intermediate_size"],
            bias=(),
            tie_embeddings=config["tie_word_embeddings"],
            logit_scale=config["logit_scale"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.mixer_spec in (BIASED, PLAIN) and shape.norm_position == "shared" and shape.feedforward in GATED,
            f"a cohere2 requires the mixer {BIASED} or {PLAIN}, norm_position shared, and a gated feedforward",
            f"got {shape.mixer_spec}, {shape.norm_position}, {shape.feedforward}",
            "use save_pretrained instead",
        )
        width, found = shape.bindable_sizes["head_width"], layer_types(shape)
        parameters, _ = rotating_layers_config(self.model_type, shape, width, DEFAULT_THETA)
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "logit_scale": shape.logit_scale,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "attention_bias": shape.mixer_spec == BIASED,
            "rope_parameters": parameters,
            # transformers needs a number, even where no layer has a window
            "sliding_window": found["sliding_window"] or self.defaults["sliding_window"],
            "layer_types": found["layer_types"],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, biased = "model.layers.{}", "blocks.{}", shape.mixer_spec == BIASED
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            TensorRule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=biased),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=False),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=False),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]
