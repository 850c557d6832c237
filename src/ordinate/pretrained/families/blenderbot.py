"""BlenderBot."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.bart_like import LEARNED, SIDES, TABLE, BartLike


class Blenderbot(BartLike):
    """BlenderBot, trained on conversations: learned positions, pre-norm.

    Source: Roller et al. 2020, Recipes for building an open-domain chatbot, https://arxiv.org/abs/2004.13637.
    """

    model_type = "blenderbot"
    generation_class = "BlenderbotForConditionalGeneration"
    norm_position = "pre"
    # encoder_no_repeat_ngram_size has an effect only where a file says so, whatever its default in transformers
    defaults: ClassVar[Mapping[str, Any]] = {
        **BartLike.defaults,
        "vocab_size": 8008,
        "max_position_embeddings": 128,
        "d_model": 2560,
        "encoder_layers": 2,
        "decoder_layers": 24,
        **{f"{side}_ffn_dim": 10_240 for side in SIDES},
        **{f"{side}_attention_heads": 32 for side in SIDES},
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": 2,
    }

    def scheme(self, config: Mapping[str, Any]) -> str:
        return LEARNED

    def schemes(self, shape: Shape) -> tuple[str, ...]:
        return (LEARNED,)

    def position_rules(self, shape: Shape, side: str) -> list[TensorRule]:
        return [TensorRule(f"{side}.schemes.0.table", (f"model.{side}.{TABLE}",))]
