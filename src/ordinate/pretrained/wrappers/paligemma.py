"""PaliGemma, PaliGemma 2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, need_known, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._wrapper import Wrapper

BOTH_WAYS, CAP = "use_bidirectional_attention", "final_logit_softcapping"
FAMILIES = ("gemma", "gemma2")
# its positions count from 1, which changes the rates of those that depend on the length of the text
BY_LENGTH = ("dynamic", "longrope")


class PaliGemma(Wrapper):
    """PaliGemma and PaliGemma 2, around a gemma and a gemma2, which are read as causal.

    In transformers the attention over a text alone, without token types, is causal in a gemma2. In a gemma it is
    causal in the eager implementation and goes both ways in SDPA, unless `use_bidirectional_attention` of its
    text_config is false: others are refused.

    Source: Beyer et al. 2024, https://arxiv.org/abs/2407.07726; Steiner et al. 2024, https://arxiv.org/abs/2412.03555.
    """

    model_type = "paligemma"
    causal_lm_class = "PaliGemmaForConditionalGeneration"
    base_class = "PaliGemmaModel"
    text_type = "gemma"
    text_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 2048,
        "num_hidden_layers": 18,
        "intermediate_size": 16_384,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "vocab_size": 257_152,
    }

    def text_config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config.json of the language model, without `architectures`.

        Raises:
            ValueError: as for any other; or another family, attention that may go both ways, or RoPE whose rates
                depend on the length of the text.
        """
        own = super().text_config(given)
        need_known("language model of a paligemma", own["model_type"], FAMILIES)
        came = own.pop(BOTH_WAYS, None)
        if own["model_type"] == "gemma":
            must = f"the language model of a paligemma is read with {BOTH_WAYS}=False if it is a gemma"
            remedy = "set it in text_config for causal attention: otherwise it depends on the implementation"
            need(came is False, must, f"got {shown(came)}", remedy)
            must = f"a gemma in a paligemma must have no {CAP}"
            need(own.get(CAP) is None, must, f"got {shown(own.get(CAP))}", "load another checkpoint")
        rope = own.get("rope_scaling") or own.get("rope_parameters") or {}
        kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, Mapping) else None
        must = f"the language model of a paligemma must have no rope_type among {', '.join(BY_LENGTH)}"
        need(kind not in BY_LENGTH, must, f"got {shown(kind)}", "load another checkpoint")
        return own

    def text_shape(self, shape: Shape, text: Mapping[str, Any]) -> Shape:
        """Return the shape of the language model inside, whose soft cap of logits the class around it has too."""
        return shape
