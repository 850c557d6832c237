"""Heads of texts in checkpoints: the classes of transformers that have them, and their settings in config.json."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS, READERS, EncoderHead, TextHead
from ordinate.pretrained._family import FirstOf, TensorRule
from ordinate.pretrained.class_labels import class_labels, label_settings

CLASS_ENDS: Mapping[TextHead, str] = {
    "classes": "ForSequenceClassification",
    "token_classes": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}
"""Ends of the names of classes by their heads."""


def head_classes(base_class: str, heads: Collection[TextHead] = READERS) -> dict[str, TextHead]:
    """Return the classes with one of these heads, and the heads.

    Args:
        base_class: the class without a head, such as BertModel.
        heads: the heads that the family has.
    """
    stem = base_class.removesuffix("Model")
    return {f"{stem}{CLASS_ENDS[head]}": head for head in heads}


def encoder_head(config: Mapping[str, Any], heads: Mapping[str, str], masked: bool) -> EncoderHead:
    """Return the head of an encoder: of the class that config.json names; if none, for masked tokens if it is there.

    Args:
        config: config.json.
        heads: the heads of the classes of the family.
        masked: whether the checkpoint has a head for masked tokens.
    """
    named = config["architectures"] or ()
    usual = "masked" if masked and not named else "none"
    return cast(EncoderHead, heads.get(named[0], "none") if named else usual)


def head_labels(head: TextHead, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the class names of a head; none for heads without classes."""
    return class_labels(config) if head in CLASSIFIERS else ()


def head_settings(shape: Shape) -> dict[str, Any]:
    """Return the config.json keys of the class names of a model, if it has any."""
    return label_settings(shape.labels) if shape.labels else {}


def masked_logit_rules(shape: EncoderShape, bias: str, decoder: str) -> list[TensorRule]:
    """Return the tensor mappings of the logits of masked tokens, behind the transform.

    Args:
        shape: hyperparameters.
        bias: name of the bias in checkpoints whose decoder is tied to the token table.
        decoder: name of the decoder, which otherwise has a weight and a bias of its own, and the other is unused.
    """
    if shape.tie_embeddings:
        return [TensorRule("masked.bias", (bias,))]
    own = TensorRule("masked.decoder.weight", (f"{decoder}.weight",))
    return [own, FirstOf("masked.bias", (f"{decoder}.bias", bias))]
