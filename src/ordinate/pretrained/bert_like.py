"""Base class of BERT-like encoders."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import ACTIVATIONS, Activation
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    HF_ACTIVATIONS,
    Family,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
    need_settings,
)

MIXER = "softmax:variant.bias=true"


class BertLike(Family):
    """BERT-like encoders: learned absolute positions, token types, post-norm, biases in every layer.

    Must: `model_type`, `prefix`, `masked_lm_class`, `base_class` and `masked_lm_rules`.
    May: `position_offset`, `position_rule`.
    """

    model_class = Encoder
    # the tied decoder of the masked-LM head, and the next-sentence-prediction head
    ignored_suffixes = (
        "position_ids",
        "seq_relationship.weight",
        "seq_relationship.bias",
        "decoder.weight",
        "decoder.bias",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "architectures": (),
    }
    masked_lm_class: ClassVar[str]
    """The transformers class with a masked-LM head."""
    base_class: ClassVar[str]
    """The transformers class with a pooler."""
    position_offset: ClassVar[int] = 0
    """Row of the position table used by the first token."""

    @abstractmethod
    def masked_lm_rules(self) -> Sequence[TensorRule]:
        """Return the tensor mappings of the masked-LM head."""

    def position_rule(self) -> TensorRule:
        """Return the mapping of the position table."""
        return TensorRule("schemes.0.table", (f"{self.prefix}embeddings.position_embeddings.weight",))

    def architecture(self, shape: Shape) -> str:
        return self.masked_lm_class if cast(EncoderShape, shape).head == "masked" else self.base_class

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        need_settings(self, config, is_decoder=False, position_embedding_type="absolute", tie_word_embeddings=True)
        activation = activation_kind(config["hidden_act"], HF_ACTIVATIONS)
        need(
            activation in ACTIVATIONS,
            "a masked-LM head needs an activation without a gate",
            f"got {activation}",
            "load another",
        )
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["max_position_embeddings"] - self.position_offset,
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="post",
            feedforward=activation,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            token_types=config["type_vocab_size"],
            head="masked" if self.masked_lm_class in config["architectures"] else "pooler",
            head_activation=cast(Activation, activation),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            isinstance(shape, EncoderShape) and shape.scheme == "learned" and shape.mixer == MIXER,
            f"a {self.model_type} must be an encoder with scheme learned and mixer {MIXER}",
            f"got {type(shape).__name__}, {shape.scheme}, {shape.mixer}",
            "use save_pretrained instead",
        )
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length + self.position_offset,
            "layer_norm_eps": shape.norm_eps,
            "hidden_act": activation_name(shape.feedforward),
            "type_vocab_size": cast(EncoderShape, shape).token_types,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, table = f"{self.prefix}encoder.layer.{{}}", "blocks.{}", f"{self.prefix}embeddings"
        parts = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        rules = [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            TensorRule("kinds.weight", (f"{table}.token_type_embeddings.weight",)),
            self.position_rule(),
            *linear_rules("embedding_norm", f"{table}.LayerNorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if cast(EncoderShape, shape).head == "masked":
            return [*rules, *self.masked_lm_rules()]
        return [*rules, *linear_rules("pooler", f"{self.prefix}pooler.dense", bias=True)]
