"""PLBART."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.bart_like import SIDES, LearnedBartLike


class Plbart(LearnedBartLike):
    """PLBART: BART for programs and what is said of them.

    Source: Ahmad et al. 2021, Unified Pre-training for Program Understanding and Generation,
    https://arxiv.org/abs/2103.06333.
    """

    model_type = "plbart"
    generation_class = "PLBartForConditionalGeneration"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LearnedBartLike.defaults,
        "vocab_size": 50_005,
        "d_model": 768,
        **{f"{side}_layers": 6 for side in SIDES},
        **{f"{side}_ffn_dim": 3072 for side in SIDES},
        **{f"{side}_attention_heads": 12 for side in SIDES},
        "scale_embedding": True,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": None,
        "forced_eos_token_id": 2,
        # another name of one that has no effect
        "init_std": 0.02,
    }
    aliases: ClassVar[Mapping[str, str]] = {**LearnedBartLike.aliases, "initializer_range": "init_std"}
