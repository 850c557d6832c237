"""ELECTRA."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import EncoderHead
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.narrow_bert_like import NarrowBertLike

DISCRIMINATOR = "ElectraForPreTraining"
PREDICTIONS = "discriminator_predictions"
LABELS = {"0": "replaced"}


class Electra(NarrowBertLike):
    """ELECTRA: BERT, trained to tell which tokens were replaced; its generator is a model of masked tokens.

    The discriminator is a classifier of tokens with one class: `class_logits` are its logits, above 0 where a token
    was replaced.

    Source: Clark et al. 2020, https://arxiv.org/abs/2003.10555.
    """

    model_type = "electra"
    prefix = "electra."
    masked_lm_class = "ElectraForMaskedLM"
    causal_lm_class = "ElectraForCausalLM"
    base_class = "ElectraModel"
    masked_transform = "generator_predictions.dense"
    masked_norm = "generator_predictions.LayerNorm"
    masked_decoder = "generator_lm_head"
    # that of the head is not an option
    head_activation = "gelu"
    defaults: ClassVar[Mapping[str, Any]] = {
        **NarrowBertLike.defaults,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }

    def named_heads(self) -> dict[str, EncoderHead]:
        return super().named_heads() | {DISCRIMINATOR: "token_classes"}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Take a checkpoint that names no class for a discriminator if it has the tensors of one."""
        unnamed = not config["architectures"] and f"{PREDICTIONS}.dense.weight" in names
        return super().complete_config({**config, "architectures": (DISCRIMINATOR,)} if unnamed else config, names)

    def positions(self, columns: int, width: int) -> str:
        return "learned" if columns == width else f"learned:width={columns}"

    def pool_activation(self, config: Mapping[str, Any]) -> Activation:
        return "gelu"

    def architecture(self, shape: Shape) -> str:
        return DISCRIMINATOR if cast(EncoderShape, shape).head_transform else super().architecture(shape)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        if (config["architectures"] or ("",))[0] != DISCRIMINATOR:
            return super().shape(config)
        # the class names in config.json are of another head
        shape = super().shape({**config, "id2label": LABELS, "num_labels": 1})
        activation = cast(Activation, shape.feedforward)
        return replace(shape, head_transform=True, head_norm=False, head_activation=activation)

    def classifier_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        if not shape.head_transform:
            return super().classifier_rules(shape)
        return [
            *linear_rules("head_transform.transform", f"{PREDICTIONS}.dense", bias=True),
            *linear_rules("classes", f"{PREDICTIONS}.dense_prediction", bias=True),
        ]
