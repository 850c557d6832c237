"""Laguna."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, need_settings
from ordinate.pretrained.deepseek_moe_like import CHOSEN, INNER, DeepseekMoeLike
from ordinate.pretrained.grouped_rows import StackedRows
from ordinate.pretrained.layer_type_ropes import layer_type_ropes_config, partial_layer_type_rope
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts
from ordinate.pretrained.moe_like import MoeLike
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

COUNT, SHARED, SCALE = "num_experts", "shared_expert_intermediate_size", "moe_routed_scaling_factor"
"""Keys: the number of experts, the hidden width of the shared network, the factor of the weights of experts."""
CAP, ON_INPUT = "moe_router_logit_softcapping", "moe_apply_router_weight_on_input"
"""Keys: the soft cap of outputs of the router, and whether weights multiply the inputs of experts."""
GATING, PER_HEAD, PER_ELEMENT = "gating", "per-head", "per-element"
"""The key of what has a gate of its own, and its values."""
HEADS = "num_attention_heads_per_layer"
THETAS = {FULL: 5e5, SLIDING: 1e4}
ROPES: Mapping[str, Any] = {
    FULL: {"rope_type": "default", "rope_theta": THETAS[FULL], "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": THETAS[SLIDING], "partial_rotary_factor": 1.0},
}
"""The RoPE of a config.json without one."""


class Laguna(DeepseekMoeLike):
    """Laguna: attention with softplus gates, as many query heads as each layer says, experts with sigmoids.

    RoPE, by default on half of each head in layers without a window, has parameters for each type of layers.

    Source: poolside, Laguna XS.2, https://huggingface.co/poolside/laguna-XS.2.
    """

    model_type = "laguna"
    base_class = "LagunaModel"
    causal_lm_class = "LagunaForCausalLM"
    # transformers has no other
    heads = ()
    count_key, shared_key, scale_key = COUNT, SHARED, SCALE
    shared = "shared_expert"
    choice_bias_name = "experts.e_score_correction_bias"
    renamed: ClassVar[Mapping[str, str]] = {
        "mlp.shared_expert.": "mlp.shared_experts.",
        f"mlp.{choice_bias_name}": "mlp.gate.e_score_correction_bias",
    }
    expert_sizes = frozenset({COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    aliases: ClassVar[Mapping[str, str]] = {}
    wide = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 100_352,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 40,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "sliding_window": 512,
        "layer_types": None,
        "attention_bias": False,
        INNER: 512,
        SHARED: 512,
        CHOSEN: 8,
        COUNT: 256,
        GATING: True,
        HEADS: None,
        KINDS: None,
        SCALE: 1.0,
        CAP: 0.0,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    output_gate, gate_name = True, "g_proj"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the types of the layers, and their numbers of heads."""
        layers, made = config["num_hidden_layers"], super().complete_config(config, names)
        types, heads = config["layer_types"], config[HEADS]
        must, came = f"{HEADS} must have a number for each of {layers} layers", f"got {shown(heads)}"
        need(heads is None or len(heads) == layers, must, came, "correct it, or load another checkpoint")
        made["layer_types"] = [FULL] * layers if types is None else types
        made[HEADS] = [config["num_attention_heads"]] * layers if heads is None else heads
        # without a layer that has it, it has no effect
        usual = config["num_attention_heads"]
        made["num_attention_heads"] = usual if usual in made[HEADS] else made[HEADS][0]
        return made

    def shape(self, config: Mapping[str, Any]) -> Shape:
        need_settings(self, config, **{ON_INPUT: False})
        kind = config[GATING]
        must = f"{GATING} must be true or false, or {PER_HEAD} or {PER_ELEMENT}"
        need(kind in (True, False, PER_HEAD, PER_ELEMENT), must, f"got {shown(kind)}", "load another checkpoint")
        found = super().shape(config)
        # without per-head gates it has those of channels, whatever it says
        mixers = _layer_mixers(str(found.mixer_spec), config[HEADS], found.heads, kind in (True, PER_HEAD))
        return replace(found, mixer=",".join(mixers))

    def config(self, shape: Shape) -> dict[str, Any]:
        plain, heads, per_head = self._plain(shape), _layer_heads(shape), _has_gates_per_head(shape)
        wanted, given = _layer_mixers(str(plain.mixer_spec), heads, shape.heads, per_head), shape.mixer_spec.entries
        need(
            [given[layer % len(given)] for layer in range(shape.layers)] == wanted,
            f"a {self.model_type} requires the mixers {','.join(wanted)!r}, of any number of heads",
            f"got {shape.mixer_spec!r}",
            "use save_pretrained instead",
        )
        return {**super().config(plain), HEADS: heads, GATING: PER_HEAD if per_head else PER_ELEMENT}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        types = config["layer_types"]
        ropes = {kind: partial_layer_type_rope(config, kind, head_width, ROPES, 1.0) for kind in {*types}}
        return ",".join(ropes[kind] for kind in types)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return layer_type_ropes_config(self.model_type, shape, head_width, THETAS, partial=True)

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        # transformers needs a number, even where no layer has a window
        return {"sliding_window": layer_types(shape)["sliding_window"] or self.defaults["sliding_window"]}

    def choice(self, config: Mapping[str, Any]) -> dict[str, Any]:
        cap = config[CAP]
        return {
            "scores": self.scores_of_experts,
            "choice_bias": True,
            "logit_softcap": float(cap) if cap > 0 else None,
        }

    def choice_config(self, options: ExpertOptions) -> dict[str, Any]:
        must = f"a {self.model_type} has experts with normalise=True, a choice_bias and one group"
        fits = options.normalise and options.choice_bias and options.groups == 1
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {CAP: options.logit_softcap or 0.0}

    def shared_width(self, config: Mapping[str, Any]) -> int | None:
        return config[SHARED]

    def shared_config(self, options: ExpertOptions, hidden: int) -> dict[str, Any]:
        return {SHARED: options.shared_hidden or hidden}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, 1, exact=True)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)

    def expert_count(self, config: Mapping[str, Any]) -> int:
        return MoeLike.expert_count(self, config)

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        width, keys = shape.bindable_sizes["head_width"], shape.heads if shape.kv_heads is None else shape.kv_heads
        heads, rules = _layer_heads(shape), list[TensorRule]()
        for rule in super().attention_rules(self._plain(shape)):
            if not isinstance(rule, StackedQKV):
                rules.append(rule)
                continue
            for layer, own in enumerate(rule.layers(shape.layers)):
                sizes = (heads[layer] * width, keys * width, keys * width)
                rules.append(StackedRows(own.ours, own.theirs, sizes))
        return rules

    def _plain(self, shape: Shape) -> Shape:
        """Return the shape with one mixer for all layers, without what all gates of the family have."""
        options = catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {})
        biased = options.get("bias") == "true"
        mixer = next(text for text, parts in self._mixers(shape).items() if parts.biased is biased)
        return replace(shape, mixer=mixer)


def _layer_mixers(mixer: str, heads: Sequence[int], usual: int, per_head: bool) -> list[str]:
    """Return the mixer of each layer.

    Args:
        mixer: with what all layers have but their gates.
        heads: number of heads of each layer.
        usual: that of the model.
        per_head: whether each head has one gate, not one for each channel.
    """
    name, _, options = mixer.partition(":")
    gates = ["variant.gate_kind=softplus", *(["variant.gate_per_head=true"] if per_head else [])]
    made = {
        count: f"{name}:{','.join([*([] if count == usual else [f'heads={count}']), options, *gates])}"
        for count in {*heads}
    }
    return [made[count] for count in heads]


def _layer_heads(shape: Shape) -> list[int]:
    """Return the number of heads of each layer of a shape."""
    given = [catalog.parse(entry)[1].get("heads") for entry in shape.mixer_spec.entries]
    counts = [shape.heads if text is None else int(text) for text in given]
    return [counts[layer % len(counts)] for layer in range(shape.layers)]


def _has_gates_per_head(shape: Shape) -> bool:
    options = catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {})
    return options.get("gate_per_head") == "true"
