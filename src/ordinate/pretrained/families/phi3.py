"""Phi-3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import one_window, one_window_config

TRAINED = "original_max_position_embeddings"
TYPES = ("default", "longrope")
# what the first versions of its files call longrope
EARLY = ("su", "yarn")


class Phi3(LlamaLike):
    """Phi-3 and 4: Llama with fused projections, LongRoPE, RoPE on a part of each head, a window in every layer.

    Source: Abdin et al. 2024, Phi-3 Technical Report, https://arxiv.org/abs/2404.14219; LongRoPE from Ding et al.
        2024, https://arxiv.org/abs/2402.13753.
    """

    model_type = "phi3"
    base_class = "Phi3Model"
    causal_lm_class = "Phi3ForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    fused_projections = True
    fused_gates = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_key_value_heads": None,
        "max_position_embeddings": 4096,
        TRAINED: 4096,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 32_000,
        "sliding_window": None,
    }

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        found = dict(config.get("rope_scaling") or config["rope_parameters"] or {})
        kind = found.pop("type", None)
        kind = found.get("rope_type", kind) or "default"
        kind = "longrope" if kind in EARLY else kind
        must = f"rope_type of a {self.model_type} must be {' or '.join(TYPES)}"
        need(kind in TYPES, must, f"got {shown(kind)}", "load another checkpoint")
        settings = {**config, "rope_scaling": None, "rope_parameters": {**found, "rope_type": kind}}
        parameters = rope_parameters(settings, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        must = f"a {self.model_type} requires the scheme rope, with no spectrum but longrope"
        need(parameters["rope_type"] in TYPES, must, f"got {shape.scheme_spec}", "use save_pretrained instead")
        # the key beside the dictionary precedes the one in it
        return {"rope_parameters": parameters, TRAINED: parameters.get(TRAINED, shape.max_length)}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return one_window_config(self.model_type, shape)
