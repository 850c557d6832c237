"""Base class of GLM-like decoders."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import interleaved, rope_parameters, rope_spec, spec_to_rope_parameters


class GlmLike(LlamaLike):
    """GLM-like decoders: Llama with RoPE on interleaved pairs of a part of each head, and biases of Q, K and V."""

    # transformers has no head for answers
    heads = ("classes", "token_classes")
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 151_552,
        "intermediate_size": 13_696,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1.5625e-07,
        "partial_rotary_factor": 0.5,
        "pad_token_id": 151_329,
        "attention_bias": True,
    }
    optional_biases = ("attention_bias",)
    out_bias = False
    fused_gates = True

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=True)
        return interleaved(rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        # without it, the factor is another one
        return {"rope_parameters": {"partial_rotary_factor": 1.0} | parameters}
