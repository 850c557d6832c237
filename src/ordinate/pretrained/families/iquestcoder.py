"""IQuest-Coder."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import need_usual
from ordinate.pretrained.llama_like import LlamaLike


class Iquestcoder(LlamaLike):
    """IQuest-Coder: Llama with other defaults.

    Source: the config `IQuestCoderConfig` of transformers, version 5, of the IQuest-Coder team.
    """

    model_type = "iquestcoder"
    base_class = "LlamaModel"
    causal_lm_class = "LlamaForCausalLM"
    # transformers has no other
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 76_800,
        "hidden_size": 5120,
        "intermediate_size": 27_648,
        "num_hidden_layers": 80,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # transformers refuses the others
        need_usual(self, config, clip_qkv=None, use_sliding_window=False)
        return super().shape(config)
