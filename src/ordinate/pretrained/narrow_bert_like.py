"""Base class of BERT-like encoders with narrower token embeddings."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.bert_like import BertLike


class NarrowBertLike(BertLike):
    """BERT-like encoders whose token embeddings are normalised, then taken to the width of the model.

    The map has a bias, and is there only if `embedding_size` is another size than `hidden_size`. They have no pooler;
    a classifier of texts has a layer of its own in that place.

    Must: what `BertLike` requires, `embedding_size` in `defaults`, and `positions`.
    """

    has_pooler = False
    text_classifier = ("classifier.dense", "classifier.out_proj")

    @abstractmethod
    def positions(self, columns: int, width: int) -> str:
        """Return the scheme spec of a model of this width, whose token table has this number of columns."""

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        width = config["hidden_size"]
        columns = width if config["embedding_size"] is None else config["embedding_size"]
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
        return {"embedding_size": shape.table_width, **self.token_types_config(shape)}

    def embedding_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        norm = "narrow_norm" if shape.narrow_norm else "embedding_norm"
        return [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            *self.token_type_rules(table, shape),
            *self.position_rules(f"{table}.position_embeddings.weight", shape.padding),
            *linear_rules(norm, f"{table}.LayerNorm", bias=True),
            *(linear_rules("widen_embeddings", f"{table}_project", bias=True) if shape.narrow_norm else ()),
        ]
