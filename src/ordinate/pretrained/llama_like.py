"""Base class of Llama-like decoders."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, StackedPair, StackedQKV, TensorRule, linear_rules, need_settings
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

FULL, SLIDING = "full_attention", "sliding_attention"


class LlamaLike(Family):
    """Llama-like decoders: RoPE, pre-norm with RMSNorm, SwiGLU, grouped-query attention.

    Must: `model_type` and `architecture`.
    May: `bias` (on the QKV projection), `qk_norm`, `windows` and `window_config`.
    """

    prefix = "model."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    bias: ClassVar[bool] = False
    """Whether the QKV projection has a bias."""
    qk_norm: ClassVar[bool] = False
    """Whether queries and keys of each head are normalised."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        need_settings(self, config, hidden_act="silu", attention_bias=False, mlp_bias=False)
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head_width = config.get("head_dim") or width // heads
        length = config["max_position_embeddings"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_width=head_width,
            scheme=rope_spec(rope_parameters(config), head_width, length),
            mixer=self._mixer(config["rms_norm_eps"]),
            sliding_windows=self.windows(config),
            max_length=length,
            norm_eps=config["rms_norm_eps"],
            feedforward="swiglu",
            hidden=config["intermediate_size"],
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        need(
            shape.feedforward == "swiglu" and shape.norm == "rms" and shape.norm_position == "pre",
            f"a {self.model_type} requires swiglu, rms norms and norm_position pre",
            f"got {shape.feedforward}, {shape.norm} and {shape.norm_position}",
            "choose another family, or use save_pretrained",
        )
        need(
            shape.mixer == self._mixer(shape.norm_eps),
            f"a {self.model_type} requires the mixer {self._mixer(shape.norm_eps)!r}",
            f"got {shape.mixer!r}",
            "choose another family, or use save_pretrained",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": "silu",
            "max_position_embeddings": shape.max_length,
            "rms_norm_eps": shape.norm_eps,
            "rope_parameters": spec_to_rope_parameters(shape.scheme, width),
            "tie_word_embeddings": shape.tie_embeddings,
            **self.window_config(shape),
        }

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """Return the sliding window of each layer; a single entry applies to all."""
        return (None,)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of the sliding windows."""
        need(
            set(shape.sliding_windows) == {None},
            f"a {self.model_type} has no windows",
            f"got {shape.sliding_windows}",
            "remove them",
        )
        return {}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            TensorRule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            TensorRule(f"{here}.feedforward_norm.weight", (f"{there}.post_attention_layernorm.weight",)),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=self.bias),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=False),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=False),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=False),
        ]
        if self.qk_norm:
            rules += [
                TensorRule(f"{here}.mixer.{x}_norm.weight", (f"{there}.self_attn.{x}_norm.weight",)) for x in "qk"
            ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def _mixer(self, norm_eps: float | None) -> str:
        options = ["variant.bias=true", "variant.out_bias=false"] if self.bias else []
        options += ["variant.qk_norm=true", f"variant.norm_eps={norm_eps}"] if self.qk_norm else []
        return "softmax:" + ",".join(options) if options else "softmax"


def layer_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the sliding windows from the `layer_types` of a config.json."""
    types = config.get("layer_types")
    window = config.get("sliding_window")
    if not types or window is None:
        return (None,)
    unknown = sorted(set(types) - {FULL, SLIDING})
    need(
        not unknown,
        "layer types must be full_attention or sliding_attention",
        f"got {', '.join(unknown)}",
        "load another checkpoint",
    )
    windows = tuple(window if kind == SLIDING else None for kind in types)
    return (windows[0],) if len(set(windows)) == 1 else windows


def layer_types(shape: Shape) -> dict[str, Any]:
    """Return the config.json keys of sliding windows by layer."""
    sizes = sorted({window for window in shape.layer_windows if window is not None})
    need(
        len(sizes) <= 1, "all sliding windows must have the same size", f"got {sizes}", "use save_pretrained instead"
    )
    return {
        "sliding_window": sizes[0] if sizes else None,
        "use_sliding_window": bool(sizes),
        "layer_types": [FULL if window is None else SLIDING for window in shape.layer_windows],
    }
