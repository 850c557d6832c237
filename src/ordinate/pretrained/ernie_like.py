"""Base class of ERNIE-4.5-like decoders."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import interleaved


class ErnieLike(LlamaLike):
    """ERNIE-4.5-like decoders: Llama with RoPE on interleaved channel pairs.

    Must: as `LlamaLike`.
    """

    # transformers has no other heads
    heads = ()
    usual: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in LlamaLike.usual.items() if name != "token_classification_bias"},
        "vocab_size": 103_424,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "rope_theta": 5e5,
        "tie_word_embeddings": True,
    }
    """Default values that these families share."""

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        return interleaved(super().scheme(config, head_width))
