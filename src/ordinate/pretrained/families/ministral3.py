"""Ministral 3."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import TRAINED_LENGTH_TYPES, rope_parameters
from ordinate.pretrained.sliding_windows import one_window, one_window_config
from ordinate.schemes.log_length import LogLength

BETA, TRAINED = "llama_4_scaling_beta", "original_max_position_embeddings"
ROPE: Mapping[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    TRAINED: 16_384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    BETA: 0.1,
}
"""The RoPE of a config.json without one."""


class Ministral3(LlamaLike):
    """Ministral 3: Mistral with YaRN, and queries that grow with the logarithm of their position.

    Source: Mistral AI 2026, Ministral 3, https://arxiv.org/abs/2601.08584.
    """

    model_type = "ministral3"
    base_class = "Ministral3Model"
    causal_lm_class = "Ministral3ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 131_072,
        "intermediate_size": 14_336,
        "num_hidden_layers": 34,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 11,
        "sliding_window": None,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the RoPE of a config.json without one."""
        rope = ROPE if config["rope_parameters"] is None else config["rope_parameters"]
        return {**super().complete_config(config, names), "rope_parameters": rope}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        given, read = config.get("rope_scaling") or config["rope_parameters"], rope_parameters(config)
        beta = given.get(BETA)
        length = (read if read["rope_type"] in TRAINED_LENGTH_TYPES else given).get(TRAINED)
        told = [float(x) for x in (beta, length) if isinstance(x, int | float) and not isinstance(x, bool)]
        must, came = f"rope_parameters must have {BETA} and {TRAINED}", f"got {shown(beta)}, {shown(length)}"
        fits = len(told) == 2 and told[1].is_integer() and told[1] > 1
        need(fits, must, came, "correct it, or download the file again")
        grown = f"log_length:form=ministral,trained_length={told[1]:.0f},beta={told[0]}"
        return f"{super().scheme(config, head_width)}+{grown}"

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        rope, _, grown = str(shape.scheme_spec).partition("+")
        name, options = catalog.parse(grown) if grown else ("none", {})
        must = f"a {self.model_type} has the scheme rope+log_length:form=ministral in all layers"
        fits = name == "log_length" and options.get("form") == "ministral"
        need(fits, must, f"got {shape.scheme_spec}", "use save_pretrained instead")
        made = LogLength(**catalog.bind(LogLength, options, shape.bindable_sizes))
        found = super().scheme_config(replace(shape, scheme=rope), head_width)["rope_parameters"]
        same = found.get(TRAINED) in (None, made.length)
        must, came = "the trained_length of log_length is that of rope", f"got {made.length}, {found.get(TRAINED)}"
        need(same, must, came, "use save_pretrained instead")
        return {"rope_parameters": {**found, BETA: made.beta, TRAINED: made.length}}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return one_window_config(self.model_type, shape)
