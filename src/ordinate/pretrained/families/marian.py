"""Marian."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.pretrained.bart_like import SinusoidalBartLike


class Marian(SinusoidalBartLike):
    """Marian (OPUS-MT): the original Transformer with sinusoidal position embeddings and post-norm.

    Source: Junczys-Dowmunt et al. 2018, Marian, https://arxiv.org/abs/1804.00344.
    """

    model_type = "marian"
    generation_class = "MarianMTModel"
    defaults: ClassVar[Mapping[str, Any]] = {
        **SinusoidalBartLike.defaults,
        "vocab_size": 58_101,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": None,
        "pad_token_id": 58100,
        "eos_token_id": 0,
        "decoder_start_token_id": 58100,
    }

    def vocabularies(self, config: Mapping[str, Any]) -> tuple[int, int | None]:
        shared, tied = config["share_encoder_decoder_embeddings"], config["tie_word_embeddings"]
        source = config["vocab_size"]
        target = config["decoder_vocab_size"] or source
        need(
            tied or not shared or source == target,
            "embeddings that are shared, but not tied (tie_word_embeddings), must have equal vocabularies",
            f"got vocab_size={source}, decoder_vocab_size={target}",
            "load another checkpoint",
        )
        # without ties, each side has the table of its own
        return source if shared else target, None if shared and tied else source

    def vocabulary_config(self, shape: EncoderDecoderShape) -> dict[str, Any]:
        return {
            "vocab_size": shape.source_vocabulary or shape.vocabulary,
            "decoder_vocab_size": shape.vocabulary,
            "share_encoder_decoder_embeddings": shape.source_vocabulary is None,
        }
