"""What ModernBERT and its decoder share: layers, rotary positions, the transform before the head."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule, linear_rules, need_usual
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.layer_type_ropes import layer_type_rope, layer_type_ropes_config
from ordinate.pretrained.sliding_windows import FULL, SLIDING, need_layer_types

# default RoPE theta of each layer type
THETAS = {FULL: 160_000.0, SLIDING: 10_000.0}
BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class ModernbertLike(Family):
    """RoPE with a larger theta in global than in sliding-window layers, gated feed-forward, no norm before the first.

    Must: besides those of `Family`, `window`, `local_attention` and `projection_rules`.
    """

    prefix = "model."
    usual: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_368,
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_activation": "gelu",
        "layer_types": None,
        "rope_parameters": None,
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "classifier_bias": False,
        "classifier_activation": "gelu",
    }
    """Default values that both have."""

    @abstractmethod
    def window(self, config: Mapping[str, Any]) -> int:
        """Return the sliding window of the layers that have one, as a shape has it."""

    @abstractmethod
    def local_attention(self, window: int) -> int:
        """Return the key of config.json for a sliding window: the inverse of `window`."""

    @abstractmethod
    def projection_rules(self, ours: str, theirs: str, *, bias: bool) -> Sequence[TensorRule]:
        """Return the tensor mappings of queries, keys and values in each layer, in parts of these names."""

    def layer_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a shape without those of its head."""
        need_usual(self, config, head_dim=config["hidden_size"] // config["num_attention_heads"])
        count, every = config["num_hidden_layers"], config["global_attn_every_n_layers"]
        default = [SLIDING if layer % every else FULL for layer in range(count)]
        kinds = default if config["layer_types"] is None else config["layer_types"]
        need_layer_types(kinds)
        window = self.window(config) if SLIDING in kinds else None
        return {
            "vocabulary": config["vocab_size"],
            "width": config["hidden_size"],
            "layers": count,
            "heads": config["num_attention_heads"],
            "scheme": ",".join(_rope(config, kind) for kind in kinds),
            "mixer": BIASED if config["attention_bias"] else PLAIN,
            "sliding_windows": tuple(None if kind == FULL else window for kind in kinds),
            "max_length": config["max_position_embeddings"],
            "norm": "layer",
            "norm_eps": config["norm_eps"],
            "feedforward": activation_kind(config, "hidden_activation", HF_GATES),
            "hidden": config["intermediate_size"],
            "bias": ("norm",) * config["norm_bias"] + ("feedforward",) * config["mlp_bias"],
            "embedding_norm": True,
            "first_norm": False,
        }

    def layer_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of these fields.

        Raises:
            ValueError: the family does not have such layers.
        """
        kind = self.model_class.__name__.lower()
        need(
            shape.mixer_spec in (BIASED, PLAIN) and shape.feedforward in GATED,
            f"a {self.model_type} must be a gated {kind} with mixer {BIASED} or {PLAIN}",
            f"got {type(shape).__name__}, {shape.mixer_spec}, {shape.feedforward}",
            "use save_pretrained instead",
        )
        sizes = {window for window in shape.layer_windows if window is not None}
        ropes = layer_type_ropes_config(self.model_type, shape, shape.width // shape.heads, THETAS)
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "hidden_activation": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "norm_eps": shape.norm_eps,
            "norm_bias": "norm" in shape.bias,
            "attention_bias": shape.mixer_spec == BIASED,
            "mlp_bias": "feedforward" in shape.bias,
            "local_attention": self.local_attention(sizes.pop()) if sizes else self.defaults["local_attention"],
            **ropes,
        }

    def layer_rules(self, shape: Shape) -> list[TensorRule]:
        """Return the tensor mappings of everything but the head."""
        there, here = "model.layers.{}", "blocks.{}"
        norms, wide, biased = "norm" in shape.bias, "feedforward" in shape.bias, shape.mixer_spec == BIASED
        rules = [
            TensorRule("tokens.weight", ("model.embeddings.tok_embeddings.weight",)),
            *linear_rules("embedding_norm", "model.embeddings.norm", bias=norms),
            *linear_rules("norm", "model.final_norm", bias=norms),
            *self.projection_rules(f"{here}.mixer.project", f"{there}.attn", bias=biased),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.Wo", bias=biased),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.mlp_norm", bias=norms),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.Wi", bias=wide),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.Wo", bias=wide),
        ]
        for layer in range(1, shape.layers):
            rules += linear_rules(f"blocks.{layer}.mixer_norm", f"model.layers.{layer}.attn_norm", bias=norms)
        return rules


def _rope(config: Mapping[str, Any], kind: str) -> str:
    """Return the RoPE scheme spec of a layer type."""
    early = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}[kind]
    head_width, theta = config["hidden_size"] // config["num_attention_heads"], config.get(early, THETAS[kind])
    return layer_type_rope(config, kind, head_width, scaled=True, theta=theta)
