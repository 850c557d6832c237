"""What BERT and the models built like it have in common."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.checks import need
from ordinate.family import ACTIVATIONS, Family, Heads, Rule, activation_of, linear, need_activation, need_settings
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import BENDS, Bend
from ordinate.models.shape import Shape

MIXER = "softmax:variant.bias=true"


class BertLike(Family):
    """Learned positions, kinds of tokens, norms after each sum, numbers added everywhere.

    Must: what a family must, `shape`, `config` and the rules of the trunk being here; `masked` and `plain`; `head`.
    May: `first`, `positions`.
    """

    kind = Encoder
    # of a head that is tied, or that tells whether one sentence follows the other
    aside = ("position_ids", "seq_relationship.weight", "seq_relationship.bias", "decoder.weight", "decoder.bias")
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "architectures": (),
    }
    masked: ClassVar[str]
    """The class of transformers with a masked head."""
    plain: ClassVar[str]
    """The class of transformers with a pooler."""
    first: ClassVar[int] = 0
    """The row of the table of positions that the first token takes."""

    @abstractmethod
    def head(self) -> Sequence[Rule]:
        """How the tensors of the masked head are called there and here."""

    def positions(self) -> Rule:
        """How the table of positions is kept."""
        return Rule("schemes.0.table", (f"{self.prefix}embeddings.position_embeddings.weight",))

    def architecture(self, shape: Shape) -> str:
        """A model with a masked head, or with a pooler."""
        return self.masked if cast(EncoderShape, shape).top == "masked" else self.plain

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        """The sizes in a config.json."""
        need_settings(self, config, is_decoder=False, position_embedding_type="absolute", tie_word_embeddings=True)
        bend = need_activation(config["hidden_act"], ACTIVATIONS)
        need(bend in BENDS, "a masked head bends its numbers without a gate", f"got {bend}", "load another")
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["max_position_embeddings"] - self.first,
            norm="layer",
            epsilon=config["layer_norm_eps"],
            order="post",
            feedforward=bend,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            kinds=config["type_vocab_size"],
            top="masked" if self.masked in config["architectures"] else "pooler",
            top_bend=cast(Bend, bend),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        need(
            isinstance(shape, EncoderShape) and shape.scheme == "learned" and shape.mixer == MIXER,
            f"a {self.model_type} is an encoder with learned positions and {MIXER}",
            f"got {type(shape).__name__}, {shape.scheme}, {shape.mixer}",
            "save it as our own",
        )
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length + self.first,
            "layer_norm_eps": shape.epsilon,
            "hidden_act": activation_of(shape.feedforward),
            "type_vocab_size": cast(EncoderShape, shape).kinds,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here, table = f"{self.prefix}encoder.layer.{{}}", "blocks.{}", f"{self.prefix}embeddings"
        parts = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        rules = [
            Rule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            Rule("kinds.weight", (f"{table}.token_type_embeddings.weight",)),
            self.positions(),
            *linear("embedding_norm", f"{table}.LayerNorm", bias=True),
            *linear(f"{here}.mixer.project", *parts, kind=Heads, bias=True),
            *linear(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if cast(EncoderShape, shape).top == "masked":
            return [*rules, *self.head()]
        return [*rules, *linear("pooler", f"{self.prefix}pooler.dense", bias=True)]
