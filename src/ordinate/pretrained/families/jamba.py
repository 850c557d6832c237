"""Jamba."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need
from ordinate.mixers.mamba import Mamba
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, TensorRule
from ordinate.pretrained.activation_names import activation_kind
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, LINEAR, HybridLike, WithoutPositions
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mamba2_like import AUTO
from ordinate.pretrained.mamba_like import MambaKeys, MambaSizes, mamba_rules
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.published_names import renamed_rules
from ordinate.pretrained.sliding_windows import FULL

KEYS = MambaKeys(
    states="mamba_d_state",
    rank="mamba_dt_rank",
    taps="mamba_d_conv",
    expand="mamba_expand",
    bias="mamba_proj_bias",
    convolution_bias="mamba_conv_bias",
)
"""The keys of the settings of Mamba."""
ATTENDING, EXPERTS = ("attn_layer_period", "attn_layer_offset"), ("expert_layer_period", "expert_layer_offset")
"""The keys of the layers with attention, and of those with experts: of how many one is, and which is the first."""
PUBLISHED_COUNT = "num_experts"
"""The name of the number of experts in published files."""


class Jamba(WithoutPositions, HybridLike[MambaSizes], MoeLike):
    """Jamba: Mamba in most layers, attention without positions in one of several, experts in every other layer.

    The numbers of step sizes, B and C of each Mamba have RMS norms.

    Source: Lieber et al. 2024, Jamba, https://arxiv.org/abs/2403.19887.
    """

    model_type = "jamba"
    base_class = "JambaModel"
    causal_lm_class = "JambaForCausalLM"
    # transformers has no other
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 65_536,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "pad_token_id": 0,
        "max_position_embeddings": 262_144,
        CHOSEN: 2,
        PUBLISHED_COUNT: 16,
        **dict(zip((*EXPERTS, *ATTENDING), (2, 1, 8, 4), strict=True)),
        KEYS.states: 16,
        KEYS.rank: AUTO,
        KEYS.taps: 4,
        KEYS.expand: 2,
        KEYS.bias: False,
        KEYS.convolution_bias: True,
    }
    aliases: ClassVar[Mapping[str, str]] = {COUNT: PUBLISHED_COUNT}
    count_key = PUBLISHED_COUNT
    recurrent = Mamba
    recurrent_mixer = "Mamba"
    recurrent_name = "mamba"
    recurrent_keys = KEYS.names
    expert_sizes = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN})
    optional_sizes = expert_sizes | KEYS.names | ATTENTION_SIZES
    norms: ClassVar[Mapping[str, str]] = {"mixer_norm": "input_layernorm", "feedforward_norm": "pre_ff_layernorm"}
    final_norm = "final_layernorm"
    router = "router"

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        return [FULL if chosen else LINEAR for chosen in _every(config, ATTENDING)]

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers."""
        return list(self.usual_types(config))

    def type_config(self, types: Sequence[str]) -> dict[str, Any]:
        must = f"a {self.model_type} has attention in some layer, or transformers does not run it with a cache"
        need(FULL in types, must, "got none", "use save_pretrained instead")
        return self._written([kind == FULL for kind in types], ATTENDING, "attention")

    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        activation = GATED[cast(Any, activation_kind(config, self.activation_key, self.gates))]
        inner = config[KEYS.expand] * config["hidden_size"]
        return KEYS.spec(config, inner, activation, {"norm": "scaled", "norm_eps": config[self.eps_key]})

    def sizes_of(self, mixer: Mamba) -> MambaSizes:
        return MambaSizes.of(mixer)

    def recurrent_config(self, shape: Shape, sizes: MambaSizes) -> dict[str, Any]:
        variant, (times, rest) = sizes.variant, divmod(sizes.inner, shape.width)
        own = variant.norm, variant.norm_eps, variant.activation
        need(
            own == ("scaled", shape.norm_eps, GATED.get(cast(Any, shape.feedforward))) and not rest,
            f"the Mamba of a {self.model_type} has scaled norms, the norm_eps of the model, the activation of its "
            "feedforward, and channels that are a multiple of the model's columns",
            f"got {sizes} with norm_eps {shape.norm_eps}, {shape.feedforward} and {shape.width} columns",
            "use save_pretrained instead",
        )
        return {**KEYS.config(sizes), KEYS.expand: times}

    def recurrent_rules(self, sizes: MambaSizes, there: str, here: str) -> Sequence[TensorRule]:
        return mamba_rules(sizes.variant, there, here)

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        dense = tuple(layer for layer, chosen in enumerate(_every(config, EXPERTS)) if not chosen)
        if config[self.count_key] < 2 or len(dense) == config["num_hidden_layers"]:
            return {}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            normalise=False,
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
        )
        return {"experts": options}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options = shape.experts
        if options is None:
            return {PUBLISHED_COUNT: 1}
        must = f"a {self.model_type} has two experts at least, whose weights are not divided by their sum"
        fits = options.count > 1 and not options.normalise
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        chosen = [layer not in options.dense_layers for layer in range(shape.layers)]
        own = {PUBLISHED_COUNT: options.count, CHOSEN: options.chosen}
        return {**own, **self._written(chosen, EXPERTS, "experts")}

    def config(self, shape: Shape) -> dict[str, Any]:
        made = super().config(shape)
        usual = shape.bindable_sizes["head_width"] == shape.width // shape.heads
        # the key is none of theirs, but counts where it is there
        return {name: value for name, value in made.items() if name != "head_dim" or not usual}

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        return renamed_rules(super().feedforward_rules(shape, layer), {".mlp.": ".feed_forward."})

    def _written(self, chosen: Sequence[bool], keys: tuple[str, str], what: str) -> dict[str, Any]:
        """Return the config.json keys of chosen layers; raise a ValueError unless there is one of so many."""
        layers = len(chosen)
        # a period longer than the model has none
        pairs = ((period, first) for period in range(1, layers + 2) for first in range(period))
        found = (pair for pair in pairs if _places(layers, *pair) == list(chosen))
        pair, must = next(found, None), f"layers with {what} of a {self.model_type} are one of every so many"
        if pair is None:
            places = [layer for layer, one in enumerate(chosen) if one]
            raise ValueError(f"{must}; got layers {places} of {layers}; use save_pretrained instead")
        return dict(zip(keys, pair, strict=True))


def _every(config: Mapping[str, Any], keys: tuple[str, str]) -> list[bool]:
    """Return whether each layer is one of those of a period and an offset; raise a ValueError for a larger offset."""
    period, first = (config[key] for key in keys)
    must, came = f"{keys[1]} must be smaller than {keys[0]}", f"got {first} and {period}"
    need(first < period, must, came, "correct it")
    return _places(config["num_hidden_layers"], period, first)


def _places(layers: int, period: int, first: int) -> list[bool]:
    return [layer % period == first for layer in range(layers)]
