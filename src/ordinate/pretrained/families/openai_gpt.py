"""GPT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, TransposedWeight, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike

MIXER = "softmax:variant.bias=true"
# its own names: gelu is the approximation
ACTIVATIONS: Mapping[str, FeedForwardKind] = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


class OpenaiGpt(DecoderLike):
    """GPT: learned absolute positions, norms after the residual sums, biases in every layer.

    Source: Radford et al. 2018, Improving Language Understanding by Generative Pre-Training.
    """

    model_type = "openai-gpt"
    base_class = "OpenAIGPTModel"
    causal_lm_class = "OpenAIGPTLMHeadModel"
    heads = ("classes",)
    prefix = "transformer."
    # buffers stored by older versions
    ignored_suffixes = ("attn.bias", "position_ids")
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 40_478,
        "n_positions": 512,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "afn": "gelu",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "max_position_embeddings": "n_positions",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
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
            norm_position="post",
            feedforward=activation_kind(config, "afn", ACTIVATIONS),
            hidden=4 * config["n_embd"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.scheme_spec == "learned"
            and shape.mixer_spec == MIXER
            and shape.norm_position == "post"
            and shape.hidden_width == 4 * shape.width,
            f"an openai-gpt requires scheme learned, mixer {MIXER}, norm_position post and hidden 4 * width",
            f"got {shape.scheme_spec}, {shape.mixer_spec}, {shape.norm_position}, {shape.hidden_width}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "n_positions": shape.max_length,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "afn": activation_name(shape.feedforward, ACTIVATIONS),
            "layer_norm_epsilon": shape.norm_eps,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            TensorRule("tokens.weight", ("transformer.tokens_embed.weight",)),
            TensorRule("schemes.0.table", ("transformer.positions_embed.weight",)),
            *linear_rules(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.ln_2", bias=True),
            *linear_rules(f"{here}.mixer.project", f"{there}.attn.c_attn", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.c_proj", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", kind=TransposedWeight, bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", kind=TransposedWeight, bias=True),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]
