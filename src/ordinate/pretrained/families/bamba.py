"""Bamba."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, LINEAR
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mamba_hybrid_like import KEYS, BambaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import FULL

ATTENDING = "attn_layer_indices"
"""The key of the layers with attention, counted from 0."""
DERIVED = "layers_block_type"
"""The types of layers, which transformers derives, and does not read."""
PART = "partial_rotary_factor"


class Bamba(BambaLike):
    """Bamba: Mamba-2 in most layers, Llama's attention in those of `attn_layer_indices`, RoPE on half of each head.

    Source: the model `BambaForCausalLM` of transformers, version 5, of IBM, Princeton, CMU and UIUC,
        https://huggingface.co/blog/bamba.
    """

    model_type = "bamba"
    base_class = "BambaModel"
    causal_lm_class = "BambaForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        **BambaLike.usual_mamba,
        "vocab_size": 128_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "max_position_embeddings": 262_144,
        "attention_bias": False,
        "mlp_bias": False,
        ATTENDING: None,
        DERIVED: None,
    }
    aliases: ClassVar[Mapping[str, str]] = {"layer_types": DERIVED}
    optional_biases = ("attention_bias", "mlp_bias")
    optional_sizes = KEYS.names | ATTENTION_SIZES
    norms: ClassVar[Mapping[str, str]] = {"mixer_norm": "input_layernorm", "feedforward_norm": "pre_ff_layernorm"}
    final_norm = "final_layernorm"
    feedforward_name = "feed_forward"

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        given = config[ATTENDING] or ()
        return [FULL if layer in given else LINEAR for layer in range(config["num_hidden_layers"])]

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers."""
        must, came = f"a bamba has {ATTENDING} in place of {DERIVED}", f"got {DERIVED}={shown(config[DERIVED])}"
        need(config[DERIVED] is None, must, came, "remove it from config.json, as transformers does not run it")
        return list(self.usual_types(config))

    def type_config(self, types: Sequence[str]) -> dict[str, Any]:
        return {ATTENDING: [layer for layer, kind in enumerate(types) if kind == FULL]}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        # one beside rope_parameters has no effect
        parameters = rope_parameters({**config, PART: 0.5}, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        # without it, the factor is another one
        return {"rope_parameters": {PART: 1.0} | parameters}
