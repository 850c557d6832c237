"""ModernBERT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.checkpoints.rope_parameters import parameters_of, rope_line
from ordinate.checks import need
from ordinate.family import (
    ACTIVATIONS,
    Family,
    Rule,
    activation_of,
    linear,
    need_activation,
    need_settings,
)
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import BENDS, Bend, Kind
from ordinate.models.shape import Shape
from ordinate.recipe import Recipe

FULL, SLIDING = "full_attention", "sliding_attention"
# how each kind of layer turns where a config.json does not say
THETAS = {FULL: 160_000.0, SLIDING: 10_000.0}
GATES: Mapping[str, Kind] = {"gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh", "silu": "swiglu"}
BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class Modernbert(Family):
    """An encoder of today: rope, slower in the layers that see all than in those that see a window; gates; no biases.

    Source: Warner et al. 2024, Smarter, Better, Faster, Longer, https://arxiv.org/abs/2412.13663.
    """

    kind = Encoder
    model_type = "modernbert"
    prefix = "model."
    aside = ("decoder.weight",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "classifier_bias": False,
        "classifier_activation": "gelu",
        "architectures": (),
    }

    def architecture(self, shape: Shape) -> str:
        """A model with a masked head, or without one."""
        return "ModernBertForMaskedLM" if cast(EncoderShape, shape).top == "masked" else "ModernBertModel"

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        """The sizes in a config.json."""
        need_settings(self, config, tie_word_embeddings=True, decoder_bias=True)
        count, every = config["num_hidden_layers"], config["global_attn_every_n_layers"]
        kinds = config.get("layer_types") or [SLIDING if layer % every else FULL for layer in range(count)]
        unknown = sorted(set(kinds) - {FULL, SLIDING})
        need(
            not unknown, "layers attend fully or in a window", f"got {', '.join(unknown)}", "load another checkpoint"
        )
        masked = "ModernBertForMaskedLM" in config["architectures"]
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=count,
            heads=config["num_attention_heads"],
            scheme=",".join(self._rope(config, kind) for kind in kinds),
            mixer=BIASED if config["attention_bias"] else PLAIN,
            # so far to either side, and the token itself
            windows=tuple(None if kind == FULL else config["local_attention"] // 2 + 1 for kind in kinds),
            max_length=config["max_position_embeddings"],
            norm="layer",
            epsilon=config["norm_eps"],
            feedforward=need_activation(config["hidden_activation"], GATES),
            hidden=config["intermediate_size"],
            bias=("norm",) * config["norm_bias"] + ("feedforward",) * config["mlp_bias"],
            embedding_norm=True,
            first_norm=False,
            top="masked" if masked else "none",
            top_bend=self._bend(config["classifier_activation"]) if masked else "gelu",
            top_bias=config["classifier_bias"] if masked else True,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        gates = {ours: theirs for theirs, ours in GATES.items()}
        fits = isinstance(shape, EncoderShape) and shape.mixer in (BIASED, PLAIN) and shape.feedforward in gates
        came = f"got {type(shape).__name__}, {shape.mixer}, {shape.feedforward}"
        need(fits, f"a modernbert is an encoder with {BIASED} or {PLAIN} and a gate", came, "save it as our own")
        plan, top = Recipe.entries(shape.scheme), cast(EncoderShape, shape)
        kinds = [FULL if window is None else SLIDING for window in shape.layer_windows]
        sizes = {window for window in shape.layer_windows if window is not None}
        turns = {(kind, plan[layer % len(plan)]) for layer, kind in enumerate(kinds)}
        need(
            len(sizes) <= 1 and len(turns) == len(set(kinds)),
            "a modernbert has one window, one rope with it and one without",
            f"got windows of {sorted(sizes)} and {sorted(turns)}",
            "save it as our own",
        )
        usual = {(kind, f"rope:theta={theta}") for kind, theta in THETAS.items() if kind not in kinds}
        ropes = {kind: parameters_of(line, shape.width // shape.heads) for kind, line in turns | usual}
        head = {"classifier_activation": activation_of(top.top_bend), "classifier_bias": top.top_bias}
        head = head if top.top == "masked" else {}
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            # where nothing is said transformers takes those of the first models
            **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")),
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "hidden_activation": gates[shape.feedforward],
            "max_position_embeddings": shape.max_length,
            "norm_eps": shape.epsilon,
            "norm_bias": "norm" in shape.bias,
            "attention_bias": shape.mixer == BIASED,
            "mlp_bias": "feedforward" in shape.bias,
            "layer_types": kinds,
            "local_attention": 2 * (sizes.pop() - 1) if sizes else self.defaults["local_attention"],
            "rope_parameters": ropes,
            **head,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "model.layers.{}", "blocks.{}"
        norms, wide = "norm" in shape.bias, "feedforward" in shape.bias
        rules = [
            Rule("tokens.weight", ("model.embeddings.tok_embeddings.weight",)),
            *linear("embedding_norm", "model.embeddings.norm", bias=norms),
            *linear("norm", "model.final_norm", bias=norms),
            *linear(f"{here}.mixer.project", f"{there}.attn.Wqkv", bias=shape.mixer == BIASED),
            *linear(f"{here}.mixer.out", f"{there}.attn.Wo", bias=shape.mixer == BIASED),
            *linear(f"{here}.feedforward_norm", f"{there}.mlp_norm", bias=norms),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.Wi", bias=wide),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.Wo", bias=wide),
        ]
        for layer in range(1, shape.layers):
            rules += linear(f"blocks.{layer}.mixer_norm", f"model.layers.{layer}.attn_norm", bias=norms)
        if cast(EncoderShape, shape).top != "masked":
            return rules
        return [
            *rules,
            *linear("masked.transform", "head.dense", bias=cast(EncoderShape, shape).top_bias),
            *linear("masked.norm", "head.norm", bias=norms),
            Rule("masked.bias", ("decoder.bias",)),
        ]

    def _rope(self, config: Mapping[str, Any], kind: str) -> str:
        """How a kind of layer turns."""
        early = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}[kind]
        said = dict((config.get("rope_parameters") or {}).get(kind) or config.get("rope_scaling") or {})
        said.setdefault("rope_theta", config.get(early, THETAS[kind]))
        head_width = config["hidden_size"] // config["num_attention_heads"]
        return rope_line(said, head_width, config["max_position_embeddings"])

    def _bend(self, name: str) -> Bend:
        bend = need_activation(name, ACTIVATIONS)
        need(bend in BENDS, "a masked head bends its numbers without a gate", f"got {bend}", "load another")
        return cast(Bend, bend)
