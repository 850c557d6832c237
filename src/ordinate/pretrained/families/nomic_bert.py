"""Nomic BERT."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.text_head import CLASSIFIERS
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_GATES
from ordinate.pretrained.bert_like import BertLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

MIXER = "softmax"
THETA = 1000.0
ABSENT = ("is_decoder", "add_cross_attention")


class NomicBert(BertLike):
    """Nomic BERT, the encoder of nomic-embed-text: RoPE, a gated feed-forward, post-norm, no biases in layers.

    Source: Nussbaum et al. 2024, https://arxiv.org/abs/2402.01613.
    """

    model_type = "nomic_bert"
    prefix = "nomic_bert."
    masked_lm_class = "NomicBertForMaskedLM"
    causal_lm_class = ""
    base_class = "NomicBertModel"
    has_pooler = False
    masked_transform = "cls.predictions.transform.dense"
    masked_norm = "cls.predictions.transform.layer_norm"
    masked_logits = "cls.predictions"
    activations = HF_GATES
    biases = ("norm",)
    mixers = (MIXER,)
    text_heads = CLASSIFIERS
    # the names of the released models, by which transformers writes them too
    layer = "encoder.layers"
    projections = ("attn.Wqkv",)
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "mixer.out": "attn.out_proj",
        "mixer_norm": "norm1",
        "feedforward.widen": ("mlp.fc12", "mlp.fc11"),
        "feedforward.narrow": "mlp.fc2",
        "feedforward_norm": "norm2",
    }
    ignored_suffixes = (*BertLike.ignored_suffixes, "inv_freq")
    defaults: ClassVar[Mapping[str, Any]] = {
        **{key: BertLike.defaults[key] for key in BertLike.defaults if key not in ABSENT},
        "vocab_size": 30_528,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "head_dim": None,
        "rope_parameters": None,
        "rope_theta": THETA,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        found = super().complete_config(config, names)
        usual = config["hidden_size"] // config["num_attention_heads"]
        return {**found, "head_dim": usual if config["head_dim"] is None else config["head_dim"]}

    def mixer(self, config: Mapping[str, Any]) -> str:
        return MIXER

    def embedding_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        return [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            *self.token_type_rules(table, shape),
            *linear_rules("embedding_norm", f"{self.prefix}emb_ln", bias=True),
        ]

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        rope = rope_spec(rope_parameters(config), config["head_dim"], config["max_position_embeddings"])
        return {**super().embeddings(config), "scheme": rope}

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        return {
            **self.token_types_config(shape),
            "head_dim": width,
            "rope_parameters": spec_to_rope_parameters(str(shape.scheme_spec), width),
        }

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        return replace(super().shape(config), head_width=config["head_dim"])
