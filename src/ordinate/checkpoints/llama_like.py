"""What the many models built like Llama have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checkpoints.rope_parameters import parameters_of, rope_line, rope_parameters
from ordinate.checks import need
from ordinate.family import Family, Halves, Heads, Rule, linear, need_settings
from ordinate.models.shape import Shape

FULL, SLIDING = "full_attention", "sliding_attention"


class LlamaLike(Family):
    """Rope, RMS norms before each branch, SiLU gates, grouped heads.

    Must: what a family must, `shape` and `config` being here.
    May: `bias` (numbers after queries, keys and values), `qk_norm`.
    """

    prefix = "model."
    aside = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    bias: ClassVar[bool] = False
    """Whether numbers are added after queries, keys and values."""
    qk_norm: ClassVar[bool] = False
    """Whether each head's queries and keys are normed."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
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
            scheme=rope_line(rope_parameters(config), head_width, length),
            mixer=self._mixer(config["rms_norm_eps"]),
            windows=self.windows(config),
            max_length=length,
            epsilon=config["rms_norm_eps"],
            feedforward="swiglu",
            hidden=config["intermediate_size"],
            tied=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        width = shape.sizes["head_width"]
        need(
            shape.feedforward == "swiglu" and shape.norm == "rms" and shape.order == "pre",
            f"a {self.model_type} has swiglu, rms norms and the order pre",
            f"got {shape.feedforward}, {shape.norm} and {shape.order}",
            "save it as another family, or as our own (save_pretrained)",
        )
        need(
            shape.mixer == self._mixer(shape.epsilon),
            f"a {self.model_type} mixes by {self._mixer(shape.epsilon)!r}",
            f"got {shape.mixer!r}",
            "save it as another family, or as our own (save_pretrained)",
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
            "rms_norm_eps": shape.epsilon,
            "rope_parameters": parameters_of(shape.scheme, width),
            "tie_word_embeddings": shape.tied,
            **self.window_config(shape),
        }

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """The window of each layer."""
        return (None,)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """What a config.json says of the windows."""
        need(set(shape.windows) == {None}, f"a {self.model_type} has no windows", f"got {shape.windows}", "drop them")
        return {}

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            Rule("tokens.weight", ("model.embed_tokens.weight",)),
            Rule("norm.weight", ("model.norm.weight",)),
            Rule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            Rule(f"{here}.feedforward_norm.weight", (f"{there}.post_attention_layernorm.weight",)),
            *linear(f"{here}.mixer.project", *parts, kind=Heads, bias=self.bias),
            *linear(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=False),
            *linear(f"{here}.feedforward.widen", *gates, kind=Halves, bias=False),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=False),
        ]
        if self.qk_norm:
            rules += [Rule(f"{here}.mixer.{x}_norm.weight", (f"{there}.self_attn.{x}_norm.weight",)) for x in "qk"]
        return rules if shape.tied else [*rules, Rule("head.weight", ("lm_head.weight",))]

    def _mixer(self, epsilon: float | None) -> str:
        said = ["variant.bias=true", "variant.out_bias=false"] if self.bias else []
        said += ["variant.qk_norm=true", f"variant.epsilon={epsilon}"] if self.qk_norm else []
        return "softmax:" + ",".join(said) if said else "softmax"


def layer_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The windows that `layer_types` says."""
    types = config.get("layer_types")
    window = config.get("sliding_window")
    if not types or window is None:
        return (None,)
    unknown = sorted(set(types) - {FULL, SLIDING})
    need(not unknown, "layers attend fully or in a window", f"got {', '.join(unknown)}", "load another checkpoint")
    windows = tuple(window if kind == SLIDING else None for kind in types)
    return (windows[0],) if len(set(windows)) == 1 else windows


def layer_types(shape: Shape) -> dict[str, Any]:
    """What a config.json says of windows by layer."""
    sizes = sorted({window for window in shape.layer_windows if window is not None})
    need(len(sizes) <= 1, "windows of one model are of one size", f"got {sizes}", "save it as our own")
    return {
        "sliding_window": sizes[0] if sizes else None,
        "use_sliding_window": bool(sizes),
        "layer_types": [FULL if window is None else SLIDING for window in shape.layer_windows],
    }
