"""Helium."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import interleaved


class Helium(LlamaLike):
    """Helium 1: Llama with RoPE on interleaved channel pairs, and biases of the QKV projections if so set.

    Source: Kyutai 2025, Helium 1, https://kyutai.org/2025/04/30/helium.html.
    """

    model_type = "helium"
    base_class = "HeliumModel"
    causal_lm_class = "HeliumForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 48_000,
        "hidden_size": 2560,
        "intermediate_size": 7040,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-8,
        "pad_token_id": 3,
        "rope_theta": 1e5,
        "attention_bias": False,
        "mlp_bias": False,
    }
    optional_biases = ("attention_bias", "mlp_bias")
    out_bias = False

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        return interleaved(super().scheme(config, head_width))

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        must = "the heads of a helium have the width of the model"
        came = f"got {shape.heads} heads of {width} channels"
        need(shape.heads * width == shape.width, must, came, "leave head_width out, or use save_pretrained")
        return super().config(shape)
