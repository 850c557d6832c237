"""OLMo."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.clipped_like import ClippedLike
from ordinate.pretrained.llama_like import LlamaLike

# not a key of its config.json
EPS = {"rms_norm_eps": 1e-5}


class Olmo(ClippedLike):
    """OLMo: Llama with LayerNorm without weights and biases; queries, keys and values are clipped in some models.

    Source: Groeneveld et al. 2024, OLMo: Accelerating the Science of Language Models,
        https://arxiv.org/abs/2402.00838.
    """

    model_type = "olmo"
    base_class = "OlmoModel"
    causal_lm_class = "OlmoForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "pad_token_id": 1,
        "attention_bias": False,
        "clip_qkv": None,
    }
    optional_biases = ("attention_bias",)
    norm = "nonparametric"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the epsilon of the norms."""
        return {**config, **EPS}

    def config(self, shape: Shape) -> dict[str, Any]:
        return {name: value for name, value in super().config(shape).items() if name not in EPS}
