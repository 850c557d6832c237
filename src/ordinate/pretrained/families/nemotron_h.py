"""Nemotron-H."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.mixers._mamba2_options import Mamba2Options
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, activation_kind, activation_name
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.config_types import check_types
from ordinate.pretrained.deepseek_moe_like import CHOSEN_GROUPS, GROUPS, INNER, PUBLISHED_COUNT, DeepseekMoeLike
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, EARLIER, LINEAR, WithoutPositions
from ordinate.pretrained.mamba2_like import Limits, Mamba2Keys
from ordinate.pretrained.mamba_hybrid_like import MambaHybridLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT
from ordinate.pretrained.sliding_windows import FULL

TYPES, PATTERN = "layers_block_type", "hybrid_override_pattern"
"""The key of the types of layers, and that of an earlier form, with a letter for each layer."""
EXPERTS, DENSE = "moe", "mlp"
"""The types of layers with experts, and with a single feed-forward."""
LETTERS: Mapping[str, str] = {"M": LINEAR, "E": EXPERTS, "*": FULL, "-": DENSE}
USUAL = [LINEAR, EXPERTS, FULL, DENSE]
"""The types of a config.json that does not say them."""
KEYS = Mamba2Keys(
    heads="mamba_num_heads",
    head_dim="mamba_head_dim",
    groups="n_groups",
    states="ssm_state_size",
    taps="conv_kernel",
    bias="use_bias",
    convolution_bias="use_conv_bias",
)
"""The keys of the settings of Mamba-2."""
LEAST, ACTIVATION = "time_step_min", "mamba_hidden_act"
"""The keys of its smallest step size, and of the function behind its convolution."""
RENAMED: Mapping[str, str] = {
    "mamba_n_groups": KEYS.groups,
    "mamba_d_conv": KEYS.taps,
    "mamba_dt_min": LEAST,
    "mamba_conv_bias": KEYS.convolution_bias,
}
"""Earlier names of keys, which count where they are there, and their later names."""
SHARED, LATENT = "moe_shared_expert_intermediate_size", "moe_latent_size"
"""The keys of the hidden width of the network beside the experts, and of the columns that experts read."""
FEEDFORWARD_BIAS = "mlp_bias"


class NemotronH(WithoutPositions, MambaHybridLike, DeepseekMoeLike):
    """Nemotron-H and Nemotron 3: layers of one mixer, or of one feed-forward, without positions.

    A layer with Mamba-2 or attention and the feed-forward behind it, if there is one, are a layer here. The head is
    never tied to the token table.

    Source: NVIDIA 2025, Nemotron-H, https://arxiv.org/abs/2504.03624.
    """

    model_type = "nemotron_h"
    base_class = "NemotronHModel"
    causal_lm_class = "NemotronHForCausalLM"
    prefix = "backbone."
    renamed: ClassVar[Mapping[str, str]] = {"backbone.": "model."}
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 131_072,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "intermediate_size": 21_504,
        "mlp_hidden_act": "relu2",
        FEEDFORWARD_BIAS: False,
        "layer_norm_epsilon": 1e-5,
        "pad_token_id": 0,
        TYPES: None,
        KEYS.states: 128,
        KEYS.heads: 128,
        KEYS.head_dim: 64,
        KEYS.groups: 8,
        KEYS.taps: 4,
        KEYS.bias: False,
        KEYS.convolution_bias: True,
        ACTIVATION: "silu",
        LEAST: 0.001,
        PUBLISHED_COUNT: 8,
        CHOSEN: 2,
        INNER: 7688,
        SHARED: 7688,
        LATENT: None,
        "routed_scaling_factor": 1.0,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        "norm_topk_prob": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {"layer_types": TYPES, COUNT: PUBLISHED_COUNT}
    mamba_keys = KEYS
    recurrent_keys = KEYS.names | RENAMED.keys()
    expert_sizes = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN, INNER, SHARED, LATENT})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes, *recurrent_keys, *ATTENTION_SIZES})
    optional_biases = (FEEDFORWARD_BIAS,)
    eps_key = "layer_norm_epsilon"
    activation_key = "mlp_hidden_act"
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_ACTIVATIONS
    gated = False
    shared_key = SHARED
    gate_names = ("up_proj",)
    fused_name = "experts.up_proj"
    final_norm = "norm_f"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Complete the settings from earlier names of keys, and the types of layers from their letters."""
        made, early = super().complete_config(config, names), {}
        for name, later in RENAMED.items():
            if name in config:
                early[later] = config[name]
        check_types(early, self.defaults)
        if made[TYPES] is None:
            made[TYPES] = _types_of_letters(config[PATTERN]) if PATTERN in config else USUAL
        return made | early

    def shape(self, config: Mapping[str, Any]) -> Shape:
        layers = _joined(config[TYPES])
        told = {"num_hidden_layers": len(layers), "tie_word_embeddings": False}
        made = super().shape(CheckpointConfig({**config, **told}))
        if any(inner for _, inner in layers):
            return made
        return replace(made, feedforward="none", hidden=None, bias=("norm",), mixer_only_layers=())

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        return [mixer for mixer, _ in _joined(config[TYPES])]

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the mixers."""
        return list(self.usual_types(config))

    def type_config(self, types: Sequence[str]) -> dict[str, Any]:
        return {}

    def convolution_activation(self, config: Mapping[str, Any]) -> Activation:
        activation_kind(config, ACTIVATION)
        return HF_ACTIVATIONS[config[ACTIVATION]]

    def limits(self, config: Mapping[str, Any]) -> Limits:
        # time_step_limit has no effect
        return max(0.0, config[LEAST]), None

    def own_config(self, shape: Shape, variant: Mamba2Options) -> dict[str, Any]:
        must, came = f"the Mamba-2 of a {self.model_type} has no largest_step", f"got {variant.largest_step}"
        need(variant.largest_step is None, must, came, "use save_pretrained instead")
        return {LEAST: variant.least_step, ACTIVATION: activation_name(variant.activation)}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        kinds = [inner for _, inner in _joined(config[TYPES])]
        bare, dense = (tuple(i for i, inner in enumerate(kinds) if inner == kind) for kind in (None, DENSE))
        if len(bare) == len(kinds):
            return {}
        if EXPERTS not in kinds:
            return {"mixer_only_layers": bare}
        must, biased = f"a {self.model_type} with experts has no {FEEDFORWARD_BIAS} here", config[FEEDFORWARD_BIAS]
        need(not biased, must, f"got {FEEDFORWARD_BIAS}={shown(biased)}", "load another checkpoint")
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
            scale=float(config["routed_scaling_factor"]),
            shared_hidden=config[SHARED] or config["intermediate_size"],
            latent=config[LATENT],
            **self.choice(config),
        )
        return {"experts": options, "hidden": config[INNER], "mixer_only_layers": bare}

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return {}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        made, options = super().expert_config(shape), shape.experts
        return made if options is None else {**made, SHARED: options.shared_hidden or 0, LATENT: options.latent}

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        rules, latent = super().expert_rules(shape, layer), shape.experts is not None and shape.experts.latent
        there, here = f"model.layers.{layer}.mlp", f"blocks.{layer}.feedforward"
        pairs = {"compress": "fc1_latent_proj", "restore": "fc2_latent_proj"} if latent else {}
        own = [linear_rules(f"{here}.{ours}", f"{there}.{name}", bias=False) for ours, name in pairs.items()]
        return [*rules, *(rule for pair in own for rule in pair)]

    def config(self, shape: Shape) -> dict[str, Any]:
        # a model without any has the keys of one with them
        fed = replace(shape, feedforward="relu2") if shape.feedforward == "none" else shape
        made = {**super().config(fed), TYPES: [kind for pair in self.layer_kinds(shape) for kind in pair]}
        return {name: value for name, value in made.items() if name != "num_hidden_layers"}

    def layer_kinds(self, shape: Shape) -> list[list[str]]:
        """Return the types of layers of the checkpoint that each layer of a shape has, in order."""
        dense = range(shape.layers) if shape.experts is None else shape.experts.dense_layers
        bare = range(shape.layers) if shape.feedforward == "none" else shape.mixer_only_layers
        fed = [[] if i in bare else [DENSE if i in dense else EXPERTS] for i in range(shape.layers)]
        return [[mixer, *inner] for mixer, inner in zip(self.types_of(shape), fed, strict=True)]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        counts = [len(kinds) for kinds in self.layer_kinds(shape)]
        names = {"model.": self.prefix, f"{self.prefix}embed_tokens.": f"{self.prefix}embeddings."}
        for layer, count in enumerate(counts):
            there, place = f"{self.prefix}layers.{layer}.", sum(counts[:layer])
            parts = {"input_layernorm": "norm", "self_attn": "mixer", "mamba": "mixer"}
            names |= {f"{there}{part}.": f"{self.prefix}layers.{place}.{name}." for part, name in parts.items()}
            parts = {"post_attention_layernorm": "norm", "mlp": "mixer"} if count == 2 else {}
            names |= {f"{there}{part}.": f"{self.prefix}layers.{place + 1}.{name}." for part, name in parts.items()}
        bare = tuple(f"blocks.{layer}.feedforward" for layer, count in enumerate(counts) if count == 1)
        rules = [one for rule in super().rules(shape) for one in rule.layers(shape.layers)]
        kept = [
            rule for rule in rules if not rule.ours.startswith(tuple(f"{name}{end}" for name in bare for end in "._"))
        ]
        return [replace(rule, theirs=tuple(_renamed(name, names) for name in rule.theirs)) for rule in kept]

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one that predicts later tokens."""
        return super().ignores(name, shape) or name.startswith("mtp")


def _types_of_letters(pattern: Any) -> list[str]:
    """Return the types of layers that a text has a letter for each of."""
    must, came = f"{PATTERN} must be a text of the letters {' '.join(LETTERS)}", f"got {shown(pattern)}"
    need(isinstance(pattern, str) and set(pattern) <= LETTERS.keys(), must, came, "correct it")
    return [LETTERS[letter] for letter in pattern]


def _joined(given: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Return the layers here: the type of each mixer, and that of the feed-forward behind it; None: there is none."""
    types = [EARLIER.get(kind, kind) for kind in given or ()]
    must = f"{TYPES} must be some of {', '.join(LETTERS.values())}"
    need(len(types) > 0 and set(types) <= {*LETTERS.values()}, must, f"got {shown(given)}", "load another checkpoint")
    made: list[tuple[str, str | None]] = []
    for place, kind in enumerate(types):
        if kind in (LINEAR, FULL):
            made.append((kind, None))
            continue
        must = f"each {EXPERTS} and {DENSE} of {TYPES} must follow a {LINEAR} or a {FULL}"
        fits = place > 0 and types[place - 1] in (LINEAR, FULL)
        need(fits, must, f"got {shown(types)}", "load another checkpoint")
        made[-1] = made[-1][0], kind
    return made


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """Return a name of a tensor with the first part that has another name replaced."""
    for part, other in names.items():
        if name.startswith(part):
            name = other + name.removeprefix(part)
    return name
