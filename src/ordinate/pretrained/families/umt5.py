"""UMT5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.t5_like import T5Like


class Umt5(T5Like):
    """UMT5: mT5 with a table of relative positions in each layer.

    Source: Chung et al. 2023, UniMax, https://arxiv.org/abs/2304.09151.
    """

    model_type = "umt5"
    generation_class = "UMT5ForConditionalGeneration"
    encoder_class = "UMT5EncoderModel"
    table_per_layer = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **T5Like.defaults,
        "vocab_size": 250_112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
        "decoder_start_token_id": 0,
    }
