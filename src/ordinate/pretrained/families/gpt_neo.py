"""GPT-Neo."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike

# scores are not scaled, and only the output projection has a bias
MIXER = "softmax:variant.scale=1.0,variant.out_bias=true"
GLOBAL, LOCAL = "global", "local"
USUAL: Any = [[[GLOBAL, LOCAL], 12]]


class GptNeo(DecoderLike):
    """GPT-Neo: learned absolute positions, a sliding window in every other layer, scores without a scale.

    Source: Black et al. 2021, GPT-Neo, https://github.com/EleutherAI/gpt-neo; TinyStories from Eldan and Li 2023,
        https://arxiv.org/abs/2305.07759.
    """

    model_type = "gpt_neo"
    base_class = "GPTNeoModel"
    causal_lm_class = "GPTNeoForCausalLM"
    prefix = "transformer."
    # causal-mask buffers stored by older versions
    ignored_suffixes = ("attn.attention.bias", "attn.attention.masked_bias")
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_257,
        "max_position_embeddings": 2048,
        "hidden_size": 2048,
        "num_layers": 24,
        "attention_types": None,
        "num_heads": 16,
        "intermediate_size": None,
        "window_size": 256,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        windows = {GLOBAL: None, LOCAL: config["window_size"]}
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_layers"],
            heads=config["num_heads"],
            scheme="learned",
            mixer=MIXER,
            sliding_windows=tuple(windows[kind] for kind in layer_kinds(config)),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward=activation_kind(config, "activation_function"),
            hidden=4 * config["hidden_size"] if config["intermediate_size"] is None else config["intermediate_size"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        sizes = sorted({window for window in shape.layer_windows if window is not None})
        need(
            shape.scheme_spec == "learned" and shape.mixer_spec == MIXER and len(sizes) <= 1,
            f"a gpt_neo requires scheme learned, mixer {MIXER}, and windows of one size",
            f"got {shape.scheme_spec}, {shape.mixer_spec}, {sizes}",
            "use save_pretrained instead",
        )
        kinds = [GLOBAL if window is None else LOCAL for window in shape.layer_windows]
        return {
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": shape.max_length,
            "hidden_size": shape.width,
            "num_layers": shape.layers,
            "attention_types": [[kinds, 1]],
            "num_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "window_size": sizes[0] if sizes else self.defaults["window_size"],
            "activation_function": activation_name(shape.feedforward),
            "layer_norm_epsilon": shape.norm_eps,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        parts = [f"{there}.attn.attention.{part}_proj" for part in "qkv"]
        rules = [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            TensorRule("schemes.0.table", ("transformer.wpe.weight",)),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.ln_2", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=False),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.attention.out_proj", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", bias=True),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def layer_kinds(config: Mapping[str, Any]) -> Sequence[str]:
    """Return the kind of attention of each layer, `global` or `local`.

    Older files list them as `attention_layers`, which count where they are; `attention_types` has lists of kinds,
    each with the number of its repetitions.
    """
    count, known, older = config["num_layers"], (GLOBAL, LOCAL), "attention_layers" in config
    given: Any = config["attention_layers"] if older else _expanded(config["attention_types"], count)
    name = "attention_layers" if older else "attention_types"
    right = isinstance(given, list) and len(given) == count and all(kind in known for kind in given)
    must = f"{name} must be {GLOBAL} or {LOCAL} for each of {count} layers"
    need(right, must, f"got {shown(given)}", f"correct it in config.json; attention_types is usually like {USUAL}")
    return given


def _expanded(given: Any, count: int) -> Any:
    """Return the kinds of layers that are repeated; what are no lists of them, or not for this many, as they are."""
    parts = USUAL if given is None else given
    fits = isinstance(parts, list) and all(map(_is_repeated, parts))
    # repetitions are counted before anything is repeated
    if not fits or sum(len(kinds) * times for kinds, times in parts) != count:
        return given
    return [kind for kinds, times in parts for kind in kinds * times]


def _is_repeated(item: Any) -> bool:
    """Whether this is a list of kinds of layers, and a number of repetitions."""
    pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], list)
    return pair and type(item[1]) is int and item[1] >= 0
