"""The encoder of T5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.t5_encoder_like import T5EncoderLike


class T5Encoder(T5EncoderLike):
    """The encoder of a T5 alone: text encoders of sentence embeddings and of models of images.

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683; sentence embeddings from Ni et al. 2022,
        Sentence-T5, https://arxiv.org/abs/2108.08877.
    """

    model_type = "t5"
    base_class = "T5EncoderModel"
    defaults: ClassVar[Mapping[str, Any]] = T5EncoderLike.usual
