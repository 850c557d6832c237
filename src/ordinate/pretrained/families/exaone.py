"""EXAONE 3 and 3.5."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.published_names import renamed_rules

PUBLISHED: Mapping[str, str] = {
    "model.embed_tokens.": "transformer.wte.",
    "model.layers.": "transformer.h.",
    "model.norm.": "transformer.ln_f.",
    ".self_attn.o_proj.": ".attn.attention.out_proj.",
    ".self_attn.": ".attn.attention.",
    ".input_layernorm.": ".ln_1.",
    ".post_attention_layernorm.": ".ln_2.",
    ".mlp.gate_proj.": ".mlp.c_fc_0.",
    ".mlp.up_proj.": ".mlp.c_fc_1.",
    ".mlp.down_proj.": ".mlp.c_proj.",
}
"""Parts of names of tensors of a Llama, and those in published files."""


class Exaone(LlamaLike):
    """EXAONE 3 and 3.5: Llama, with other names of tensors in published files.

    Source: LG AI Research 2024, EXAONE 3.0 7.8B Instruction Tuned Language Model, https://arxiv.org/abs/2408.03541.
    """

    model_type = "exaone"
    base_class = "LlamaModel"
    causal_lm_class = "LlamaForCausalLM"
    # transformers has no other
    heads = ()
    aliases: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    }
    renamed: ClassVar[Mapping[str, str]] = {there: here for here, there in PUBLISHED.items()}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 102_400,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5e5,
        "pad_token_id": 0,
        "attention_bias": False,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return renamed_rules(super().rules(shape), PUBLISHED)
