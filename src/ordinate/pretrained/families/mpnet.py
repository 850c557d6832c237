"""MPNet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight
from ordinate.pretrained.roberta_like import PADDING, RobertaLike

# transformers has this number of buckets, whatever config.json says; the table may have further rows
BUCKETS = 32
SCHEME = f"learned+t5:buckets={BUCKETS},max_distance=128"
ROWS = "relative_attention_num_buckets"
ABSENT = ("type_vocab_size", "is_decoder", "add_cross_attention", "pad_token_id")


@dataclass(frozen=True)
class FirstRows(TensorRule):
    """The first rows of a table, which are used; others are written as zeros.

    Args:
        rows: rows of the table in the checkpoint.
    """

    rows: int

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][:BUCKETS]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [nn.functional.pad(tensor, (0, 0, 0, self.rows - BUCKETS))]


class Mpnet(RobertaLike):
    """MPNet: BERT with learned positions beside a relative bias with the buckets of T5, shared by all layers.

    Positions count as in RoBERTa, from padding token 1 whatever config.json says.

    Source: Song et al. 2020, https://arxiv.org/abs/2004.09297.
    """

    model_type = "mpnet"
    prefix = "mpnet."
    masked_lm_class = "MPNetForMaskedLM"
    causal_lm_class = ""
    base_class = "MPNetModel"
    projections = ("attention.attn.q", "attention.attn.k", "attention.attn.v")
    position_table = "schemes.0.parts.0.table"
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        **RobertaLike.parts,
        "mixer.out": "attention.attn.o",
        "mixer_norm": "attention.LayerNorm",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        **{key: RobertaLike.defaults[key] for key in RobertaLike.defaults if key not in ABSENT},
        "vocab_size": 30_527,
        ROWS: BUCKETS,
    }

    def padding(self, config: Mapping[str, Any]) -> int | None:
        return super().padding({**config, "pad_token_id": PADDING})

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        must, came = (
            f"{ROWS} must be at least {BUCKETS}, which transformers reads",
            f"got {config[ROWS]}",
        )
        need(config[ROWS] >= BUCKETS, must, came, "load another checkpoint")
        return {**super().embeddings(config), "scheme": SCHEME}

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        must, came = f"an {self.model_type} has the padding token {PADDING}", f"got padding={shape.padding}"
        need(shape.padding == PADDING, must, came, f"give padding={PADDING}")
        must, came = f"an {self.model_type} must be an encoder with scheme {SCHEME}", f"got {shape.scheme_spec}"
        need(shape.scheme_spec == SCHEME, must, came, "use save_pretrained instead")
        return {}

    def position_rules(self, table: str, padding: int | None) -> Sequence[TensorRule]:
        bias, rows = f"{self.prefix}encoder.relative_attention_bias.weight", self.settings.get(ROWS, BUCKETS)
        return [*super().position_rules(table, padding), FirstRows("schemes.0.parts.1.table", (bias,), rows)]
