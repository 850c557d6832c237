"""Phi-3.5-MoE."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec
from ordinate.pretrained.sliding_windows import one_window, one_window_config
from ordinate.schemes.spectra._spectrum import Spectrum

JITTER, HEAD_BIAS = "router_jitter_noise", "lm_head_bias"
SHORT, LONG = "short_mscale", "long_mscale"
"""The keys of the factors of rotated queries and keys in short texts, and in long ones."""
TYPES = ("default", "longrope")


class Phimoe(MoeLike):
    """Phi-3.5-MoE: Mixtral with LayerNorm, SparseMixer routing to two experts, and LongRoPE.

    In transformers its LongRoPE has the short factors at any length, and so it is read.

    Source: Abdin et al. 2024, Phi-3 Technical Report, section 3, https://arxiv.org/abs/2404.14219; its routing from
        Liu et al. 2024, GRIN, https://arxiv.org/abs/2409.12136.
    """

    model_type = "phimoe"
    base_class = "PhimoeModel"
    causal_lm_class = "PhimoeForCausalLM"
    # transformers has no other
    heads = ("classes",)
    norm = "layer"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_064,
        "intermediate_size": 6400,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        "attention_bias": False,
        HEAD_BIAS: False,
        COUNT: 16,
        CHOSEN: 2,
        JITTER: 0.01,
    }
    optional_biases = ("attention_bias",)
    renamed: ClassVar[Mapping[str, str]] = {".gate.weight": ".router.weight"}
    expert_layer = "block_sparse_moe"
    gate_names = ("w1", "w3")
    out_name = "w2"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        made = super().shape(config)
        return replace(made, bias=(*made.bias, "head")) if config[HEAD_BIAS] else made

    def config(self, shape: Shape) -> dict[str, Any]:
        return {**super().config(shape), HEAD_BIAS: shape.head == "next_token" and "head" in shape.bias}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return [*(rule for rule in super().rules(shape) if rule.ours != "head.weight"), *self.head_rules(shape)]

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # transformers takes two, whatever num_experts_per_tok says
        count = self.expert_count(config)
        need(count > 1, f"{COUNT} of a {self.model_type} must be above 1", f"got {count}", "load another checkpoint")
        options = ExpertOptions(count, scores="sparsemixer", normalise=False, jitter=float(config[JITTER]))
        return {"experts": options}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        told, options = super().expert_config(shape), shape.experts
        sparse = options is not None and options.scores == "sparsemixer"
        must = f"a {self.model_type} has experts with scores='sparsemixer'"
        need(sparse, must, f"got experts={options}", "use save_pretrained instead")
        return {**told, JITTER: 0.0 if options is None else options.jitter}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        read = rope_parameters(config)
        kind, given = read["rope_type"], config.get("rope_scaling") or config["rope_parameters"] or {}
        must = f"rope_type of a {self.model_type} must be {' or '.join(TYPES)}"
        need(kind in TYPES, must, f"got {shown(kind)}", "load another checkpoint")
        if kind == "default":
            return super().scheme(config, head_width)
        short, long = given.get(SHORT), given.get(LONG)
        must = f"{SHORT} and {LONG} of rope_parameters must be the same number above zero"
        if not isinstance(short, int | float) or short <= 0 or short != long:
            raise ValueError(f"{must}; got {shown(short)}, {shown(long)}; load another checkpoint")
        fixed = {"long_factor": read.get("short_factor"), "attention_factor": float(short)}
        return rope_spec({**read, **fixed}, head_width, config["max_position_embeddings"])

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        found = super().scheme_config(shape, head_width)["rope_parameters"]
        kind, same = found["rope_type"], found.get("short_factor") == found.get("long_factor")
        must = (
            f"a {self.model_type} requires the scheme rope, plain or longrope with equal short_factor and long_factor"
        )
        need(kind in TYPES and same, must, f"got {shape.scheme_spec}", "use save_pretrained instead")
        if kind == "default":
            return {"rope_parameters": found}
        scale = Spectrum.from_rope_parameters(found).query_key_scale
        return {"rope_parameters": {**found, SHORT: scale, LONG: scale}}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return one_window_config(self.model_type, shape)
