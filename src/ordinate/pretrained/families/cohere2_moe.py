"""Cohere 2 with experts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

from ordinate.core.checks import need, need_known, shown
from ordinate.models.expert_options import Combination, ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mlp_layer_types import DENSE, KINDS, SPARSE, layer_kinds, layers_without_experts
from ordinate.pretrained.moe_like import CHOSEN, MoeLike
from ordinate.pretrained.rope_parameters import (
    DEFAULT_THETA,
    NONE,
    interleaved,
    rope_parameters,
    rope_spec,
    rotating_layers_config,
)
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

COUNT, SHARED, COMBINED = "num_experts", "num_shared_experts", "shared_expert_combination_strategy"
"""Keys: the number of experts, the widths of one that the shared network has, how both are combined."""
FIRST, EVERY, EVERY_DENSE = "first_k_dense_replace", "sliding_window_pattern", "prefix_dense_sliding_window_pattern"
"""Keys: the number of first layers without experts, n where every n-th layer has no window, the same for those."""
DENSE_WIDTH, SCORES, RMS_EPS = "prefix_dense_intermediate_size", "expert_selection_fn", "rms_norm_eps"
"""Keys: the hidden width of layers without experts, the scores of experts, the epsilon of RMSNorm."""


class Cohere2Moe(MoeLike):
    """Cohere 2 with a mixture of experts (Command A+): in all layers, or in all but the first.

    Attention and experts are parallel, after one norm; RoPE is in layers with a sliding window, and in those without
    experts if so set.

    Source: Cohere, Command A+, https://huggingface.co/CohereLabs/command-a-plus-05-2026.
    """

    model_type = "cohere2_moe"
    base_class = "Cohere2MoeModel"
    causal_lm_class = "Cohere2MoeForCausalLM"
    # transformers has no other
    heads = ()
    count_key = COUNT
    defaults: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in LlamaLike.usual.items() if name != "rope_parameters"},
        "vocab_size": 256_000,
        "hidden_size": 8192,
        "intermediate_size": 22_528,
        "logit_scale": 0.0625,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "head_dim": 128,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        RMS_EPS: None,
        "pad_token_id": 0,
        "rope_theta": DEFAULT_THETA,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        EVERY: 4,
        EVERY_DENSE: 1,
        "layer_types": None,
        KINDS: None,
        FIRST: 0,
        COUNT: 8,
        CHOSEN: 2,
        SHARED: 0,
        COMBINED: "average",
        SCORES: "softmax",
        "norm_topk_prob": True,
        DENSE_WIDTH: None,
    }
    optional_biases = ("attention_bias",)
    norm_position = "shared"
    norms: ClassVar[Mapping[str, str]] = {"mixer_norm": "input_layernorm"}
    eps_key = "layer_norm_eps"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the kinds of the layers; say that one setting has no effect, as in transformers."""
        if config.get("rope_scaling"):
            told = shown(config["rope_scaling"])
            self.warning = (
                f"rope_scaling ({told}) has no effect, as in transformers: give rope_parameters in its place"
            )
        made, layers, first = super().complete_config(config, names), config["num_hidden_layers"], config[FIRST]
        if config[KINDS] is None:
            made[KINDS] = [DENSE if layer < first else SPARSE for layer in range(layers)]
        if config["layer_types"] is None:
            used = (EVERY, EVERY_DENSE) if first else (EVERY,)
            for key in used:
                must = f"{key} must be above zero, where layer_types is left out"
                need(config[key] > 0, must, f"got {config[key]}", "give layer_types in config.json")
            plan = ((config[EVERY_DENSE], first), (config[EVERY], layers - first))
            made["layer_types"] = [
                SLIDING if (n + 1) % every else FULL for every, count in plan for n in range(count)
            ]
        return made

    def shape(self, config: Mapping[str, Any]) -> Shape:
        rms, found = config[RMS_EPS], super().shape(config)
        norm: dict[str, Any] = {"norm": "layer"} if rms is None else {"norm_eps": rms}
        return replace(found, **norm, bias=(), logit_scale=config["logit_scale"])

    def config(self, shape: Shape) -> dict[str, Any]:
        must = f"a {self.model_type} has rms norms, or layer norms without biases"
        fits = shape.norm == "rms" or (shape.norm == "layer" and "norm" not in shape.bias)
        need(fits, must, f"got norm={shape.norm}, bias={shape.bias}", "use save_pretrained instead")
        found = super().config(replace(shape, norm="rms"))
        return {**found, RMS_EPS: shape.norm_eps if shape.norm == "rms" else None, "logit_scale": shape.logit_scale}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        given, must = (
            config.get("rope_parameters", {"rope_type": "default"}),
            "rope_parameters must have a rope_theta",
        )
        own = isinstance(given, Mapping) and given
        # transformers completes those of other types
        plain = (
            own and given.get("rope_type", given.get("type", "default")) == "default" and "rope_parameters" in config
        )
        fits = own and (not plain or given.get("rope_theta") is not None)
        need(bool(fits), must, f"got {shown(given)}", "correct it, or download the file again")
        read = rope_parameters({**config, "rope_scaling": None, "rope_parameters": given})
        rope = interleaved(rope_spec(read, head_width, config["max_position_embeddings"]))
        dense = layers_without_experts(config, 1, exact=True) if config[EVERY_DENSE] == 1 else ()
        windows = enumerate(self.all_windows(config))
        return ",".join(rope if window is not None or layer in dense else NONE for layer, window in windows)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters, rotating = rotating_layers_config(self.model_type, shape, head_width, DEFAULT_THETA)
        dense = range(shape.layers) if shape.experts is None else shape.experts.dense_layers
        plain = [rotating[layer] for layer in dense if shape.layer_windows[layer] is None]
        # of no effect beside layer_types but this one
        return {"rope_parameters": parameters, EVERY_DENSE: 1 if all(plain) else 2}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def all_windows(self, config: Mapping[str, Any]) -> Sequence[int | None]:
        """Return the window of each layer."""
        found = self.windows(config)
        return found * config["num_hidden_layers"] if len(found) == 1 else found

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        dense, hidden = layers_without_experts(config, 1, exact=True), config["intermediate_size"]
        wide = hidden if config[DENSE_WIDTH] is None else config[DENSE_WIDTH]
        if len(dense) == config["num_hidden_layers"]:
            return {"hidden": wide}
        need_known(SCORES, config[SCORES], ("softmax", "sigmoid"))
        shared = config[SHARED] > 0
        if shared:
            need_known(COMBINED, config[COMBINED], get_args(Combination))
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            scores=config[SCORES],
            # a softmax of the chosen ones
            normalise=config[SCORES] == "softmax" or bool(config["norm_topk_prob"]),
            dense_layers=dense,
            dense_hidden=wide if dense else None,
            shared_hidden=hidden * config[SHARED] if shared else None,
            combined=config[COMBINED] if shared else "sum",
        )
        return {"experts": options}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return {**layer_kinds(shape, range(shape.layers)), DENSE_WIDTH: hidden}
        must = f"the experts of a {self.model_type} have scores of sigmoids, or of a softmax with normalise=True"
        fits = options.scores == "sigmoid" or (options.scores == "softmax" and options.normalise)
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {
            COUNT: options.count,
            CHOSEN: options.chosen,
            SCORES: options.scores,
            "norm_topk_prob": options.normalise,
            SHARED: (options.shared_hidden or 0) // hidden,
            COMBINED: options.combined,
            DENSE_WIDTH: options.dense_hidden,
            **layer_kinds(shape, options.dense_layers),
        }
