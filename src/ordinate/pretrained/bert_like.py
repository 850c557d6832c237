"""Base class of BERT-like encoders."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import READERS, EncoderHead, TextHead
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import (
    Family,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.text_heads import head_classes, head_labels, head_settings, masked_logit_rules

MIXER = "softmax:variant.bias=true"
# parts of a layer that read the output of an encoder
CROSS_ATTENTION = tuple(
    f"crossattention.{part}.{kind}"
    for part in ("self.query", "self.key", "self.value", "output.dense", "output.LayerNorm")
    for kind in ("weight", "bias")
)


class BertLike(Family):
    """BERT-like encoders: learned absolute positions, token types, post-norm, biases in every layer.

    Must: `model_type`, `prefix`, `masked_lm_class`, `causal_lm_class`, `base_class`, `masked_transform`,
        `masked_norm` and `masked_logits`.
    May: `classifier_rules`, `head_activation`, `position_rules`, `padding`.
    """

    model_class = Encoder
    # the next-sentence-prediction head, and a pooler beside a masked-LM head
    ignored_suffixes = (
        "position_ids",
        "embeddings.token_type_ids",
        "seq_relationship.weight",
        "seq_relationship.bias",
        "pooler.dense.weight",
        "pooler.dense.bias",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 30_522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "architectures": (),
    }
    masked_lm_class: ClassVar[str]
    """The transformers class with a masked-LM head."""
    causal_lm_class: ClassVar[str]
    """The transformers class with the same head, for `is_decoder`."""
    masked_transform: ClassVar[str]
    """Name of the linear layer of the masked-LM head."""
    masked_norm: ClassVar[str]
    """Name of its norm."""
    masked_logits: ClassVar[str]
    """Name of what has its bias and its decoder."""
    base_class: ClassVar[str]
    """The transformers class with a pooler."""
    head_activation: ClassVar[Activation | None] = None
    """Activation of the masked-LM head; None: that of the feed-forward."""

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, and by the tensors."""
        there, named = f"{self.masked_transform}.weight" in names, config["architectures"]
        pooler = any(name.endswith("pooler.dense.weight") for name in names)
        # the class for pre-training has a masked-LM head and one for the next sentence
        classes = (self.masked_lm_class, self.causal_lm_class, f"{self.base_class[:-5]}ForPreTraining")
        masked = there and (not named or named[0] in classes)
        if named and named[0] in classes and not there:
            self.warning = f"config.json names a {named[0]}, but no tensor is of a masked-LM head: loaded without one"
        if config["add_cross_attention"]:
            told = "cross-attention is not loaded: it is used only together with an encoder"
            self.warning = f"{self.warning}; {told}" if self.warning else told
        head = "masked" if masked else "pooler" if pooler else "none"
        return {**config, "head": head_classes(self.base_class).get(named[0] if named else "", head)}

    def classifier_rules(self, head: TextHead) -> Sequence[TensorRule]:
        """Return the tensor mappings of a classifier, or of a head for answers."""
        if head == "spans":
            return linear_rules("classes", "qa_outputs", bias=True)
        rules = linear_rules("classes", "classifier", bias=True)
        return rules if head == "token_classes" else [*self.pooler_rules(), *rules]

    def pooler_rules(self) -> Sequence[TensorRule]:
        """Return the tensor mappings of the pooler."""
        return linear_rules("pooler", f"{self.prefix}pooler.dense", bias=True)

    def masked_lm_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        """Return the tensor mappings of the masked-LM head."""
        return [
            *linear_rules("masked.transform", self.masked_transform, bias=True),
            *linear_rules("masked.norm", self.masked_norm, bias=True),
            *masked_logit_rules(shape, f"{self.masked_logits}.bias", f"{self.masked_logits}.decoder"),
        ]

    def position_offset(self, padding: int | None) -> int:
        """Return the row of the position table that the first token takes."""
        return 0 if padding is None else padding + 1

    def position_ids(self, positions: Int[Tensor, "b n"], shape: Shape) -> Int[Tensor, "b n"]:
        return positions + self.position_offset(cast(EncoderShape, shape).padding)

    def padding(self, config: Mapping[str, Any]) -> int | None:
        """Return the padding token if positions depend on it."""
        return None

    def position_rules(self, table: str, padding: int | None) -> Sequence[TensorRule]:
        """Return the mappings of the position table of this name."""
        return [TensorRule("schemes.0.table", (table,))]

    def architecture(self, shape: Shape) -> str:
        named = {head: name for name, head in head_classes(self.base_class).items()}
        return (named | {"masked": self.masked_lm_class}).get(shape.head, self.base_class)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        need(
            config["is_decoder"] or not config["add_cross_attention"],
            "add_cross_attention needs is_decoder",
            "got is_decoder=False, which transformers does not run",
            "set is_decoder in config.json, or load another checkpoint",
        )
        activation, padding = activation_kind(config, "hidden_act"), self.padding(config)
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["max_position_embeddings"] - self.position_offset(padding),
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="post",
            feedforward=activation,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            token_types=config["type_vocab_size"],
            causal=config["is_decoder"],
            tie_embeddings=config["tie_word_embeddings"] or config["head"] != "masked",
            head=cast(EncoderHead, config["head"]),
            head_activation=self.head_activation or cast(Activation, activation),
            labels=head_labels(config["head"], config),
            padding=padding,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            isinstance(shape, EncoderShape) and shape.scheme_spec == "learned" and shape.mixer_spec == MIXER,
            f"a {self.model_type} must be an encoder with scheme learned and mixer {MIXER}",
            f"got {type(shape).__name__}, {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        top = cast(EncoderShape, shape)
        padding, kinds = top.padding, top.token_types
        came = f"got token_types={kinds}"
        need(kinds > 0, f"a {self.model_type} has token types", came, "use save_pretrained instead")
        return {
            **({} if padding is None else {"pad_token_id": padding}),
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length + self.position_offset(padding),
            "layer_norm_eps": shape.norm_eps,
            "hidden_act": activation_name(shape.feedforward),
            "type_vocab_size": kinds,
            "is_decoder": top.causal,
            "tie_word_embeddings": top.tie_embeddings,
            **head_settings(shape),
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        return (*self.ignored_suffixes, *(CROSS_ATTENTION if self.settings.get("add_cross_attention") else ()))

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, table = f"{self.prefix}encoder.layer.{{}}", "blocks.{}", f"{self.prefix}embeddings"
        top = cast(EncoderShape, shape)
        parts = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        rules = [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            TensorRule("kinds.weight", (f"{table}.token_type_embeddings.weight",)),
            *self.position_rules(f"{table}.position_embeddings.weight", top.padding),
            *linear_rules("embedding_norm", f"{table}.LayerNorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if top.head in READERS:
            return [*rules, *self.classifier_rules(top.head)]
        return [*rules, *{"masked": self.masked_lm_rules(top), "pooler": self.pooler_rules(), "none": []}[top.head]]
