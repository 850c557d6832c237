"""MiMo-V2-Flash."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    GROUPS,
    INNER,
    PUBLISHED_COUNT,
    SCALE,
    DeepseekMoeLike,
)
from ordinate.pretrained.grouped_rows import StackedRows
from ordinate.pretrained.layer_type_ropes import layer_type_ropes_config, partial_layer_type_rope
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

VALUE, VALUE_SCALE = "v_head_dim", "attention_value_scale"
"""The keys of the channels of the values of a head, and of their factor."""
SEEN_BEFORE = "sliding_window_size"
"""The key of the window of published files, which does not count the token itself."""
# without a key
SHARE = 0.334
THETAS = {FULL: 5e6, SLIDING: 1e4}
ROPES: Mapping[str, Any] = {
    kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": SHARE}
    for kind, theta in THETAS.items()
}
"""The RoPE of a config.json without one."""
# every so many layers have no window, and so has the first
EVERY = 6


class MimoV2Flash(DeepseekMoeLike):
    """MiMo-V2-Flash: in most layers windows, sinks and twice as many key heads; narrow values; experts with sigmoids.

    RoPE turns a part of each head, with a larger theta in layers without a window. Layers that predict tokens after
    the next one are not read, as in transformers.

    Source: Xiaomi, MiMo-V2-Flash, https://huggingface.co/XiaomiMiMo/MiMo-V2-Flash.
    """

    model_type = "mimo_v2_flash"
    base_class = "MiMoV2FlashModel"
    causal_lm_class = "MiMoV2FlashForCausalLM"
    # transformers has no other
    heads = ()
    shared_key = ""
    expert_sizes = frozenset({"num_local_experts", PUBLISHED_COUNT, CHOSEN, INNER})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    null_is_missing = frozenset({SCALE})
    renamed: ClassVar[Mapping[str, str]] = {"attention_sink_bias": "sinks"}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 152_576,
        "intermediate_size": 16_384,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 192,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "sliding_window": 129,
        "layer_types": None,
        "attention_bias": False,
        INNER: 2048,
        CHOSEN: 8,
        PUBLISHED_COUNT: 256,
        SCALE: 1.0,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        "norm_topk_prob": True,
        KINDS: None,
        VALUE: 128,
        VALUE_SCALE: 0.707,
    }
    optional_biases = ("attention_bias",)
    out_bias = False
    score_options = ("value_width", "value_scale")

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the types of the layers, and read the window from the key that precedes in transformers."""
        layers, before = range(config["num_hidden_layers"]), config.get(SEEN_BEFORE)
        types = [SLIDING if layer and (layer + 1) % EVERY else FULL for layer in layers]
        types = types if config["layer_types"] is None else config["layer_types"]
        must, came = f"{SEEN_BEFORE} must be a whole number, or null", f"got {shown(before)}"
        need(before is None or type(before) is int, must, came, "correct it, or download the file again")
        window = config["sliding_window"] if before is None else before + 1
        return {**super().complete_config(config, names), "layer_types": types, "sliding_window": window}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        found = super().shape(config)
        keys = found.heads if found.kv_heads is None else found.kv_heads
        mixers = _layer_mixers(str(found.mixer_spec), found.layer_windows, keys)
        return replace(found, mixer=",".join(mixers), kv_heads=keys if None in found.layer_windows else 2 * keys)

    def config(self, shape: Shape) -> dict[str, Any]:
        plain = self._plain(shape)
        keys = shape.heads if plain.kv_heads is None else plain.kv_heads
        wanted = _layer_mixers(str(plain.mixer_spec), shape.layer_windows, keys)
        given = shape.mixer_spec.entries
        need(
            [given[layer % len(given)] for layer in range(shape.layers)] == wanted,
            f"a {self.model_type} requires the mixers {','.join(wanted)!r}, with sinks and twice as many kv_heads "
            "where there is a window",
            f"got {shape.mixer_spec!r}",
            "use save_pretrained instead",
        )
        return super().config(plain)

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        ropes = {
            kind: partial_layer_type_rope(config, kind, head_width, ROPES, SHARE) for kind in {*config["layer_types"]}
        }
        return ",".join(ropes[kind] for kind in config["layer_types"])

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return layer_type_ropes_config(self.model_type, shape, head_width, THETAS, partial=True)

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        # transformers needs a number, even where no layer has a window
        return {"sliding_window": layer_types(shape)["sliding_window"] or self.defaults["sliding_window"]}

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        factor = config[VALUE_SCALE]
        return {
            "value_width": None if config[VALUE] == head_width else config[VALUE],
            "value_scale": None if factor is None or factor == 1 else float(factor),
        }

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        width, factor = scores["value_width"], scores["value_scale"]
        return {VALUE: head_width if width is None else int(width), VALUE_SCALE: 1.0 if factor is None else factor}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, 1)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        plain, rules = self._plain(shape), list[TensorRule]()
        ends = ("weight", "bias") if self._mixers(plain)[str(plain.mixer_spec)].biased else ("weight",)
        head_width, count = (
            shape.bindable_sizes["head_width"],
            plain.heads if plain.kv_heads is None else plain.kv_heads,
        )
        wide = self.score_config(self._given_scores(shape), head_width)[VALUE]
        for layer, window in enumerate(shape.layer_windows):
            there, here, keys = (
                f"model.layers.{layer}.self_attn",
                f"blocks.{layer}.mixer",
                count * (1 + (window is not None)),
            )
            sizes = (shape.heads * head_width, keys * head_width, keys * wide)
            for end in ends:
                names = tuple(f"{there}.{part}_proj.{end}" for part in "qkv")
                rules.append(StackedRows(f"{here}.project.{end}", names, sizes))
            rules += linear_rules(f"{here}.out", f"{there}.o_proj", bias=False)
            if window is not None:
                rules.append(TensorRule(f"{here}.sinks", (f"{there}.attention_sink_bias",)))
        return rules

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one for tokens after the next one."""
        return super().ignores(name, shape) or name.startswith("model.mtp.")

    def _plain(self, shape: Shape) -> Shape:
        """Return the shape of a model whose layers are all like those without a window."""
        options = catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {})
        biased = options.get("bias") == "true"
        mixer = next(text for text, parts in self._mixers(shape).items() if parts.biased is biased)
        keys = shape.heads if shape.kv_heads is None else shape.kv_heads
        count, rest = divmod(keys, 1 if None in shape.layer_windows else 2)
        must = f"a {self.model_type} with windows in all layers has an even number of key heads"
        need(not rest, must, f"got kv_heads={keys}", "use save_pretrained instead")
        return replace(shape, mixer=mixer, kv_heads=count)

    def _given_scores(self, shape: Shape) -> dict[str, float | None]:
        found = super()._given_scores(shape)
        width = found["value_width"]
        return {**found, "value_width": None if width is None else int(width)}


def _layer_mixers(mixer: str, windows: Sequence[int | None], kv_heads: int) -> list[str]:
    """Return the mixer of each layer: with sinks, and twice as many key heads, where there is a window.

    Args:
        mixer: that of layers without one.
        windows: the window of each layer.
        kv_heads: key heads of layers without one; where all have one, the model itself has twice as many.
    """
    name, _, options = mixer.partition(":")
    more = [f"kv_heads={2 * kv_heads}"] if None in windows else []
    windowed = f"{name}:{','.join([*more, *([options] if options else []), 'variant.sinks=true'])}"
    return [mixer if window is None else windowed for window in windows]
