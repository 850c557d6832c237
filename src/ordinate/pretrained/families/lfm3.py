"""LFM3."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.hybrid_like import LINEAR, TYPES
from ordinate.pretrained.layer_type_ropes import layer_type_rope
from ordinate.pretrained.lfm2_like import CONVOLUTION, SPAN, Lfm2Like
from ordinate.pretrained.llama_like import MixerParts
from ordinate.pretrained.rope_parameters import NONE, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import FULL, SLIDING, need_window_size

WINDOW = "sliding_window"
NORMED, GATED = "use_sandwich_norm", "use_attention_gate"
"""The keys of whether outputs of branches are normalised too, and of whether each head of attention has a gate."""
OUT_NORMS: Mapping[str, str] = {"mixer_out_norm": "post_operator_norm", "feedforward_out_norm": "post_ffn_norm"}
"""Names of these norms in checkpoints."""
ROPES: Mapping[str, Any] = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
}
"""The RoPE of a config.json without one."""
EVERY = 4


class Lfm3(Lfm2Like):
    """LFM3: LFM2 with windows in half of the layers with attention, norms of the outputs of branches, gates of heads.

    RoPE of layers without a window is proportional, unless `rope_parameters` says otherwise.

    Source: Liquid AI, LFM3, https://huggingface.co/LiquidAI/LFM3-1.7B.
    """

    model_type = "lfm3"
    base_class = "Lfm3Model"
    causal_lm_class = "Lfm3ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **Lfm2Like.usual,
        "vocab_size": 128_000,
        "hidden_size": 2048,
        "intermediate_size": 7680,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "pad_token_id": 124_893,
        "attention_bias": False,
        SPAN: 7,
        WINDOW: 256,
        NORMED: True,
        GATED: True,
    }
    aliases: ClassVar[Mapping[str, str]] = {"rms_norm_eps": "norm_eps"}
    earlier: ClassVar[Mapping[str, str]] = {}
    renamed: ClassVar[Mapping[str, str]] = {".self_attn.gate_proj.": ".self_attn.g_proj."}
    optional_biases = ("attention_bias",)
    qk_norms = ("q_norm", "k_norm")
    attention_names: ClassVar[Mapping[str, str]] = {}

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        kinds = {2: FULL, 0: SLIDING}
        layers = range(config["num_hidden_layers"])
        return [kinds.get(layer % EVERY, CONVOLUTION) if layer else CONVOLUTION for layer in layers]

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the types of the layers and the parameters of RoPE, as transformers does."""
        made = super().complete_config(config, names)
        types = self.usual_types(config) if config[TYPES] is None else config[TYPES]
        ropes = ROPES if config["rope_parameters"] is None else config["rope_parameters"]
        return {**made, TYPES: list(types), "rope_parameters": config.get("rope_scaling") or ropes}

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers, without their windows; raise a ValueError for others than the three."""
        own, given = {CONVOLUTION: LINEAR, SLIDING: FULL, FULL: FULL}, config[TYPES]
        must = f"{TYPES} must be {CONVOLUTION}, {SLIDING} or {FULL}"
        need(set(given) <= own.keys(), must, f"got {shown(given)}", "correct it, or load another checkpoint")
        return [own[kind] for kind in given]

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        size, kinds = config[WINDOW], config[TYPES]
        need_window_size(size)
        must, came = f"layers of {SLIDING} need a {WINDOW}", f"got {shown(size)}"
        need(size is not None or SLIDING not in kinds, must, came, "set it in config.json")
        return tuple(size if kind == SLIDING else None for kind in kinds)

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        # that of one type, for all layers; `shape` gives each layer its own
        kinds = [kind for kind in config[TYPES] if kind != CONVOLUTION]
        return self.rope(config, kinds[0], head_width) if kinds else NONE

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        # written by type of layers
        return {}

    def rope(self, config: Mapping[str, Any], kind: str, head_width: int) -> str:
        """Return the scheme of layers of a type."""
        return layer_type_rope(
            {**config, "rope_scaling": None}, kind, head_width, scaled=False, theta=config["rope_theta"]
        )

    def shape(self, config: Mapping[str, Any]) -> Shape:
        made = super().shape(config)
        made = replace(made, norm_position="peri" if config[NORMED] else self.norm_position)
        kinds, width = config[TYPES], made.bindable_sizes["head_width"]
        if set(kinds) == {CONVOLUTION}:
            return made
        ropes = {kind: self.rope(config, kind, width) for kind in {*kinds} - {CONVOLUTION}} | {CONVOLUTION: NONE}
        return replace(made, scheme=",".join(ropes[kind] for kind in kinds))

    def config(self, shape: Shape) -> dict[str, Any]:
        windows, plan, width = shape.layer_windows, shape.scheme_spec.entries, shape.bindable_sizes["head_width"]
        pairs = zip(self.types_of(shape), windows, strict=True)
        kinds = [CONVOLUTION if kind == LINEAR else FULL if size is None else SLIDING for kind, size in pairs]
        turns = {(kind, plan[layer % len(plan)]) for layer, kind in enumerate(kinds) if kind != CONVOLUTION}
        sizes = {size for size in windows if size is not None}
        must = f"a {self.model_type} has one window size, one rope for layers with it and one for those without"
        came = f"got sliding_windows={shape.sliding_windows} and {shape.scheme_spec}"
        fits = len(turns) == len({kind for kind, _ in turns}) and len(sizes) <= 1
        need(fits, must, came, "use save_pretrained instead")
        made = super().config(self.unified(shape))
        ropes = {kind: spec_to_rope_parameters(line, width) for kind, line in turns}
        gated = self._mixers(shape)[self._attending(shape).mixer_spec].gated
        return {
            **made,
            "head_dim": width,
            TYPES: kinds,
            WINDOW: next(iter(sizes), self.defaults[WINDOW]),
            NORMED: shape.norm_position == "peri",
            GATED: gated,
            **({"rope_parameters": ropes} if ropes else {}),
        }

    def unified(self, shape: Shape) -> Shape:
        """Return the shape of a model whose attention has no window and one scheme, without norms of outputs."""
        types, plan = self.types_of(shape), shape.scheme_spec.entries
        schemes = [plan[layer % len(plan)] for layer in range(shape.layers)]
        rope = next((line for line, kind in zip(schemes, types, strict=True) if kind == FULL), NONE)
        one = [rope if kind == FULL else line for line, kind in zip(schemes, types, strict=True)]
        position = self.norm_position if shape.norm_position == "peri" else shape.norm_position
        return replace(shape, scheme=",".join(one), sliding_windows=(None,), norm_position=position)

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules, types = list(super().attention_rules(shape)), self.types_of(shape)
        found = self._mixers(shape).get(self._attending(shape).mixer_spec)
        gated = [layer for layer, kind in enumerate(types) if kind == FULL and found is not None and found.gated]
        for layer in gated:
            names = f"blocks.{layer}.mixer.output_gate", f"model.layers.{layer}.self_attn.gate_proj"
            rules += linear_rules(*names, bias=False)
        return rules

    def norm_rules(self, shape: Shape) -> Sequence[TensorRule]:
        added = OUT_NORMS.items() if shape.norm_position == "peri" else ()
        pairs = [linear_rules(f"blocks.{{}}.{ours}", f"model.layers.{{}}.{name}", bias=False) for ours, name in added]
        return [*super().norm_rules(shape), *(rule for pair in pairs for rule in pair)]

    def _attending(self, shape: Shape) -> Shape:
        return super()._attending(self.unified(shape))

    def _parts(self, config: Mapping[str, Any]) -> MixerParts:
        return replace(super()._parts(config), gated=bool(config[GATED]))

    def _mixers(self, shape: Shape) -> dict[str, MixerParts]:
        plain = super()._mixers(shape).values()
        parts = [replace(one, gated=gated) for gated in (False, True) for one in plain]
        return {self._mixer(shape.norm_eps, {}, one): one for one in parts}

    def _mixer(self, norm_eps: float | None, scores: Mapping[str, float | None], parts: MixerParts) -> str:
        gates = ["variant.output_gate=true", "variant.gate_per_head=true"] if parts.gated else []
        gates += ["variant.gate_bias=false"] if parts.gated and parts.biased else []
        return ",".join([super()._mixer(norm_eps, scores, parts), *gates])
