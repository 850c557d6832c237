"""Base class of BERT-like encoders with narrower token embeddings."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.bert_like import BertLike


class NarrowBertLike(BertLike):
    """BERT-like encoders whose token embeddings are normalised, then taken to the width of the model.

    The map has a bias, and is there only if `embedding_size` is another size than `hidden_size`. Most have no pooler;
    a classifier of texts has a layer of its own in that place.

    Must: what `BertLike` requires, the key of `size_key` in `defaults`, and `positions`.
    May: `size_key`, `embedding_map`, `always_mapped`.
    """

    size_key: ClassVar[str] = "embedding_size"
    """The key of the columns of the token table."""
    embedding_map: ClassVar[str] = "embeddings_project"
    """Name of the map, behind the prefix."""
    always_mapped: ClassVar[bool] = False
    """Whether it is there for equal sizes too, which are refused then."""

    has_pooler = False
    text_classifier = ("classifier.dense", "classifier.out_proj")

    @abstractmethod
    def positions(self, columns: int, width: int) -> str:
        """Return the scheme spec of a model of this width, whose token table has this number of columns."""

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        width = config["hidden_size"]
        columns = width if config[self.size_key] is None else config[self.size_key]
        must, came = (
            f"{self.size_key} of a {self.model_type} must be another than hidden_size",
            f"got {columns} twice",
        )
        need(columns != width or not self.always_mapped, must, came, "load another checkpoint")
        return {
            "scheme": self.positions(columns, width),
            "token_types": self.token_types(config),
            "embedding_width": None if columns == width else columns,
            "embedding_norm": columns == width,
            "narrow_norm": columns != width,
        }

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        wanted = self.positions(shape.table_width, shape.width)
        must, came = f"a {self.model_type} must have scheme {wanted}", f"got {shape.scheme_spec}"
        need(shape.scheme_spec == wanted, must, came, "use save_pretrained instead")
        return {self.size_key: shape.table_width, **self.token_types_config(shape)}

    def embedding_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        norm = "narrow_norm" if shape.narrow_norm else "embedding_norm"
        return [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            *self.token_type_rules(table, shape),
            *self.position_rules(f"{table}.position_embeddings.weight", shape.padding),
            *linear_rules(norm, f"{table}.LayerNorm", bias=True),
            *(
                linear_rules("widen_embeddings", f"{self.prefix}{self.embedding_map}", bias=True)
                if shape.narrow_norm
                else ()
            ),
        ]
