"""RoFormer."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.activation_names import activation_kind
from ordinate.pretrained.bert_like import MIXER
from ordinate.pretrained.narrow_bert_like import NarrowBertLike
from ordinate.pretrained.stored_sinusoids import are_sinusoids, sinusoid_table

# values are rotated as keys are
ROTATING = f"{MIXER},encode_values=true"
TABLE = "encoder.embed_positions.weight"


class Roformer(NarrowBertLike):
    """RoFormer, the first model with RoPE: BERT with interleaved rotations of queries and keys, if so set of values.

    Its checkpoints have a table of sines and cosines, which is checked as it is read, and computed as it is written.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864.
    """

    model_type = "roformer"
    prefix = "roformer."
    masked_lm_class = "RoFormerForMaskedLM"
    causal_lm_class = "RoFormerForCausalLM"
    base_class = "RoFormerModel"
    masked_transform = "cls.predictions.transform.dense"
    masked_norm = "cls.predictions.transform.LayerNorm"
    masked_logits = "cls.predictions"
    mixers = (MIXER, ROTATING)
    null_is_missing = frozenset({"embedding_size"})
    ignored_suffixes = (*NarrowBertLike.ignored_suffixes, TABLE)
    defaults: ClassVar[Mapping[str, Any]] = {
        **NarrowBertLike.defaults,
        "vocab_size": 50_000,
        "embedding_size": None,
        "max_position_embeddings": 1536,
        "rotary_value": False,
    }

    def positions(self, columns: int, width: int) -> str:
        return "rope:layout=interleaved"

    def position_rules(self, table: str, padding: int | None) -> Sequence[TensorRule]:
        return []

    def mixer(self, config: Mapping[str, Any]) -> str:
        return ROTATING if config["rotary_value"] else MIXER

    def pool_activation(self, config: Mapping[str, Any]) -> Activation:
        return cast(Activation, activation_kind(config, "hidden_act"))

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        for name in (name for name in tensors if name.endswith(TABLE)):
            wanted = shape.max_length, shape.width // shape.heads
            need(
                are_sinusoids(tensors[name], *wanted, rounded=True),
                f"{name} of a {self.model_type} must be sines and cosines, with the sizes {wanted}",
                "got other numbers, or other sizes",
                "load another checkpoint",
            )
        return shape

    def computed(self, shape: Shape) -> Mapping[str, Tensor]:
        return {f"{self.prefix}{TABLE}": sinusoid_table(shape.max_length, shape.width // shape.heads).float()}

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        padding, must = shape.padding, f"a {self.model_type} counts all tokens"
        need(padding is None, must, f"got padding={padding}", "use save_pretrained instead")
        return {**super().embeddings_config(shape), "rotary_value": shape.mixer_spec == ROTATING}
