"""M2M-100."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.bart_like import BartLike

# a pad_token_id that is no token: positions count from 0
NO_PADDING = -1


class M2m100(BartLike):
    """M2M-100 and NLLB: mBART with sinusoidal positions that count from the padding token + 1, without a logit bias.

    Sources: Fan et al. 2020, Beyond English-Centric Multilingual Machine Translation,
    https://arxiv.org/abs/2010.11125; NLLB Team 2022, No Language Left Behind, https://arxiv.org/abs/2207.04672.
    """

    model_type = "m2m_100"
    generation_class = "M2M100ForConditionalGeneration"
    norm_position = "pre"
    has_logit_bias = False
    # stored by early versions of transformers, which computes them
    ignored_suffixes = (*BartLike.ignored_suffixes, "embed_positions.weights")
    defaults: ClassVar[Mapping[str, Any]] = {
        **BartLike.defaults,
        "vocab_size": 128_112,
        "activation_function": "relu",
        "scale_embedding": True,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }

    def scheme(self, config: Mapping[str, Any]) -> str:
        padding, start = config["pad_token_id"], config["decoder_start_token_id"]
        start = config["bos_token_id"] if start is None else start
        whole = isinstance(padding, int) and padding >= -1
        must = "positions of an m2m_100 count from pad_token_id + 1, which is 0 or more"
        need(whole, must, f"got pad_token_id={padding}", "set it in config.json; 1 is usual")
        must = "decoder_start_token_id of an m2m_100 must not be pad_token_id: a padding token takes no position"
        need(start != padding, must, f"got {start} for both", "load another checkpoint")
        return _scheme(config["d_model"], padding)

    def schemes(self, shape: Shape) -> tuple[str, ...]:
        return (_scheme(shape.width, NO_PADDING if shape.padding is None else shape.padding),)

    def position_rules(self, shape: Shape, side: str) -> list[TensorRule]:
        return []

    def config(self, shape: Shape) -> dict[str, Any]:
        found = super().config(shape)
        padding, start = found["pad_token_id"], found.get("decoder_start_token_id")
        must = "start of an m2m_100 must not be padding: a padding token takes no position in transformers"
        need(start is None or start != padding, must, f"got {start} for both", "change one of them")
        return found | {"pad_token_id": NO_PADDING if padding is None else padding}


def _scheme(width: int, padding: int) -> str:
    spec = f"sinusoidal:form=tensor2tensor,scale=1.0,position_offset={padding + 1}"
    return f"{spec},odd_width=zero_pad" if width % 2 else spec
