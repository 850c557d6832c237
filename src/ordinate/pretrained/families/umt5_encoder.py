"""The encoder of UMT5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.t5_encoder_like import T5EncoderLike


class Umt5Encoder(T5EncoderLike):
    """The encoder of a UMT5 alone: each layer has a table of relative positions.

    Source: Chung et al. 2023, UniMax, https://arxiv.org/abs/2304.09151.
    """

    model_type = "umt5"
    base_class = "UMT5EncoderModel"
    table_per_layer = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **T5EncoderLike.usual,
        "vocab_size": 250_112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
    }
