"""mT5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.t5_like import T5Like


class Mt5(T5Like):
    """mT5: T5 1.1, trained on a hundred languages; the input of its head is not scaled.

    Source: Xue et al. 2021, https://arxiv.org/abs/2010.11934.
    """

    model_type = "mt5"
    generation_class = "MT5ForConditionalGeneration"
    encoder_class = "MT5EncoderModel"
    defaults: ClassVar[Mapping[str, Any]] = {
        **T5Like.defaults,
        "vocab_size": 250_112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
        "decoder_start_token_id": 0,
    }

    def scales(self, config: Mapping[str, Any]) -> bool:
        return False
