"""DistilBERT."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained.bert_like import BertLike


class Distilbert(BertLike):
    """DistilBERT: BERT with half the layers, trained to predict as BERT does, without token types and pooler.

    Source: Sanh et al. 2019, https://arxiv.org/abs/1910.01108.
    """

    model_type = "distilbert"
    prefix = "distilbert."
    masked_lm_class = "DistilBertForMaskedLM"
    causal_lm_class = ""
    base_class = "DistilBertModel"
    has_pooler = False
    masked_transform = "vocab_transform"
    masked_norm = "vocab_layer_norm"
    masked_decoder = "vocab_projector"
    text_classifier = ("pre_classifier", "classifier")
    layer = "transformer.layer"
    projections = ("attention.q_lin", "attention.k_lin", "attention.v_lin")
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "mixer.out": "attention.out_lin",
        "mixer_norm": "sa_layer_norm",
        "feedforward.widen": "ffn.lin1",
        "feedforward.narrow": "ffn.lin2",
        "feedforward_norm": "output_layer_norm",
    }
    keys: ClassVar[Mapping[str, str]] = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 30_522,
        "dim": 768,
        "n_layers": 6,
        "n_heads": 12,
        "hidden_dim": 3072,
        "max_position_embeddings": 512,
        "activation": "gelu",
        "tie_word_embeddings": True,
        "architectures": (),
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        # it is not an option there
        return {**super().complete_config(config, names), "layer_norm_eps": 1e-12}

    def pool_activation(self, config: Mapping[str, Any]) -> Activation:
        return "relu"

    def config(self, shape: Shape) -> dict[str, Any]:
        return {name: value for name, value in super().config(shape).items() if name != "layer_norm_eps"}
