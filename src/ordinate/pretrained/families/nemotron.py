"""Nemotron."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained.activation_names import HF_LEARNED
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters


class Nemotron(LlamaLike):
    """Nemotron 3 and 4, Minitron: zero-centred LayerNorm, squared ReLU without a gate, RoPE on half of each head.

    Source: Parmar et al. 2024, Nemotron-4 15B Technical Report, https://arxiv.org/abs/2402.16819.
    """

    model_type = "nemotron"
    base_class = "NemotronModel"
    causal_lm_class = "NemotronForCausalLM"
    span_prefix = "transformer."
    norm = "layer"
    zero_centred = True
    eps_key = "norm_eps"
    gated = False
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_LEARNED
    defaults: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in LlamaLike.usual.items() if name != "rms_norm_eps"},
        "vocab_size": 256_000,
        "hidden_size": 6144,
        "intermediate_size": 24_576,
        "num_attention_heads": 48,
        "num_key_value_heads": None,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "attention_bias": False,
        "mlp_bias": False,
    }
    optional_biases = ("attention_bias", "mlp_bias")

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        # without it, the factor is another one
        return {"rope_parameters": {"partial_rotary_factor": 1.0} | parameters}
