"""MiniCPM 3."""

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.granite_like import shortest_near
from ordinate.pretrained.latent_like import CONTENT, QUERY_RANK, RANK, ROTATED, VALUE, LatentLike

EMBEDDING, DEPTH, BASE = "scale_emb", "scale_depth", "dim_model_base"
"""The keys of the factor of embeddings, of that of branches times the root of the number of layers, and of that of
logits times the width."""


class Minicpm3(LatentLike):
    """MiniCPM 3: latent attention, and factors of the embeddings, the output of each branch and the logits.

    Source: the factors are those of Hu et al. 2024, MiniCPM, https://arxiv.org/abs/2404.06395; the model is
        `MiniCPM3ForCausalLM` of transformers, version 5, of OpenBMB.
    """

    model_type = "minicpm3"
    base_class = "MiniCPM3Model"
    causal_lm_class = "MiniCPM3ForCausalLM"
    # transformers has no other
    heads = ("classes",)
    half_layout = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **LatentLike.usual,
        "vocab_size": 73_448,
        "hidden_size": 2560,
        "intermediate_size": 6400,
        "num_hidden_layers": 62,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        RANK: 256,
        QUERY_RANK: 768,
        CONTENT: 64,
        ROTATED: 32,
        VALUE: None,
        EMBEDDING: 12,
        DEPTH: 1.4,
        BASE: 256,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Complete null sizes and factors with those that change nothing."""
        width, told = config["hidden_size"], super().complete_config(config, names)
        usual = {
            VALUE: width // config["num_attention_heads"],
            DEPTH: math.sqrt(config["num_hidden_layers"]),
            BASE: width,
        }
        return told | {name: value for name, value in usual.items() if told[name] is None}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        factor = float(config[EMBEDDING])
        return {
            "embedding_scale": factor,
            "round_embedding_scale": factor != 1.0,
            "residual_scale": config[DEPTH] / math.sqrt(config["num_hidden_layers"]),
            "logit_scale": config[BASE] / config["hidden_size"],
        }

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        base, root = round(shape.logit_scale * shape.width), math.sqrt(shape.layers)
        must = f"the logit_scale of a {self.model_type} must be a whole number over the width"
        came = f"got logit_scale={shape.logit_scale} with a width of {shape.width}"
        need(base > 0 and base / shape.width == shape.logit_scale, must, came, "use save_pretrained instead")
        depth = shortest_near(shape.residual_scale * root, lambda x: x / root == shape.residual_scale)
        return {EMBEDDING: shape.embedding_scale, DEPTH: depth, BASE: base}
