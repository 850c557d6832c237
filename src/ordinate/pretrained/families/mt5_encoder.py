"""The encoder of mT5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.t5_encoder_like import T5EncoderLike


class Mt5Encoder(T5EncoderLike):
    """The encoder of an mT5 alone.

    Source: Xue et al. 2021, https://arxiv.org/abs/2010.11934.
    """

    model_type = "mt5"
    base_class = "MT5EncoderModel"
    defaults: ClassVar[Mapping[str, Any]] = {
        **T5EncoderLike.usual,
        "vocab_size": 250_112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
    }
