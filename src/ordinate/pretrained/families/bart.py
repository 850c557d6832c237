"""BART."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.bart_like import LearnedBartLike


class Bart(LearnedBartLike):
    """BART, trained to restore texts: learned positions, normalised embeddings, post-norm.

    Source: Lewis et al. 2020, https://arxiv.org/abs/1910.13461.
    """

    model_type = "bart"
    generation_class = "BartForConditionalGeneration"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LearnedBartLike.defaults,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    }
