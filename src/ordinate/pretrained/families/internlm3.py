"""InternLM 3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike


class Internlm3(LlamaLike):
    """InternLM 3: Llama, with the classes of Llama in transformers.

    Source: Cai et al. 2024, InternLM2 Technical Report, https://arxiv.org/abs/2403.17297.
    """

    model_type = "internlm3"
    base_class = "LlamaModel"
    causal_lm_class = "LlamaForCausalLM"
    # transformers has no other for its config.json
    heads = ()
    aliases: ClassVar[Mapping[str, str]] = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 128_512,
        "intermediate_size": 10_240,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 2,
        "attention_bias": False,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # in its own code the first is that of queries, keys and values only
        own, inner = (bool(config[name]) for name in self.optional_biases)
        must = "attention_bias (qkv_bias) and mlp_bias (bias) of an internlm3 must be the same, as in transformers"
        need(own == inner, must, f"got {own} and {inner}", "load another checkpoint")
        return super().shape(config)
