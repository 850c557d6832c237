"""StarCoder2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import one_window, one_window_config

# of the names for the same formula, this one is usual
ACTIVATIONS = {"gelu_pytorch_tanh": HF_ACTIVATIONS["gelu_pytorch_tanh"], **HF_ACTIVATIONS}
BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class Starcoder2(DecoderLike):
    """StarCoder2: RoPE, grouped-query attention with a window in every layer, LayerNorm, biases, no gate.

    Source: Lozhkov et al. 2024, StarCoder 2 and The Stack v2, https://arxiv.org/abs/2402.19173.
    """

    model_type = "starcoder2"
    base_class = "Starcoder2Model"
    causal_lm_class = "Starcoder2ForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    token_classifier = "score"
    prefix = "model."
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 49_152,
        "hidden_size": 3072,
        "intermediate_size": 12_288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "head_dim": None,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "norm_epsilon": 1e-5,
        "rope_parameters": None,
        "sliding_window": None,
        "use_bias": True,
        "tie_word_embeddings": True,
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
            kv_heads=config["num_key_value_heads"],
            head_width=head_width,
            scheme=rope_spec(rope_parameters(config), head_width, length),
            mixer=BIASED if config["use_bias"] else PLAIN,
            sliding_windows=one_window(config),
            max_length=length,
            norm="layer",
            norm_eps=config["norm_epsilon"],
            feedforward=activation_kind(config, "hidden_act"),
            hidden=config["intermediate_size"],
            # norms have one in any case
            bias=("norm", "feedforward") if config["use_bias"] else ("norm",),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.mixer_spec in (BIASED, PLAIN),
            f"a starcoder2 requires the mixer {BIASED} or {PLAIN}",
            f"got {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        width = shape.bindable_sizes["head_width"]
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": activation_name(shape.feedforward, ACTIVATIONS),
            "max_position_embeddings": shape.max_length,
            "norm_epsilon": shape.norm_eps,
            "rope_parameters": spec_to_rope_parameters(shape.scheme_spec, width),
            "use_bias": shape.mixer_spec == BIASED,
            "tie_word_embeddings": shape.tie_embeddings,
            **one_window_config(self.model_type, shape),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, biased = "model.layers.{}", "blocks.{}", shape.mixer_spec == BIASED
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *linear_rules("norm", "model.norm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=biased),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", bias=biased),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", bias=biased),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]
