"""Olmo Hybrid."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.models.block import NormPosition
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.delta_hybrid_like import (
    HEADS,
    KEY_HEADS,
    KEY_WIDTH,
    LINEAR_SIZES,
    TAPS,
    VALUE_WIDTH,
    DeltaHybridLike,
)
from ordinate.pretrained.grouped_rows import StackedRows
from ordinate.pretrained.hybrid_like import LINEAR, TYPES
from ordinate.pretrained.llama_like import OUT_NORMS, LlamaLike
from ordinate.pretrained.rope_parameters import NONE, rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.short_filters import WHOLE, filter_rule, whole_filters
from ordinate.pretrained.sliding_windows import FULL

NEGATIVE = "linear_allow_neg_eigval"
"""The key of whether a state can change its sign."""
PRE_NORMS: Mapping[str, str] = {"mixer_norm": "input_layernorm", "feedforward_norm": "post_attention_layernorm"}
"""Names of the norms of a layer with linear attention in models of transformers."""
POSITIONS: Mapping[str, NormPosition] = {LINEAR: "pre", FULL: "res_post"}
"""Position of the norms of each type of layer."""
FILES = {"input_layernorm": "attention_layer_norm", "post_attention_layernorm": "feedforward_layer_norm"}
"""Names of norms in models of transformers, and those that it gives them in files."""
# of the norm of the heads of a gated DeltaNet, whatever the config.json
EPS = 1e-5


class OlmoHybrid(DeltaHybridLike):
    """Olmo Hybrid: gated DeltaNet in three of four layers, the attention of OLMo 3 in the fourth, without positions.

    Layers with linear attention have norms before the branches, the others after them.

    Source: OLMo Team 2026, Olmo Hybrid, https://huggingface.co/allenai/Olmo-Hybrid-7B.
    """

    model_type = "olmo_hybrid"
    base_class = "OlmoHybridModel"
    causal_lm_class = "OlmoHybridForCausalLM"
    # transformers has no other
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 100_352,
        "hidden_size": 3840,
        "intermediate_size": 11_008,
        "num_attention_heads": 30,
        "num_key_value_heads": None,
        "max_position_embeddings": 65_536,
        "pad_token_id": 100_277,
        "attention_bias": False,
        TYPES: None,
        KEY_HEADS: None,
        HEADS: None,
        KEY_WIDTH: None,
        VALUE_WIDTH: None,
        TAPS: 4,
        NEGATIVE: True,
    }
    optional_sizes = LINEAR_SIZES
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norm_across = True
    norm_position = "res_post"
    norms = OUT_NORMS
    delta_norm = "o_norm"
    delta_out = "o_proj"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Complete the sizes of a gated DeltaNet from those of attention."""
        made = super().complete_config(config, names)
        heads = {
            name: made["num_attention_heads"] if made[name] is None else made[name] for name in (KEY_HEADS, HEADS)
        }
        keys = int(0.75 * made["hidden_size"] / heads[KEY_HEADS]) if made[KEY_WIDTH] is None else made[KEY_WIDTH]
        values = 2 * keys if made[VALUE_WIDTH] is None else made[VALUE_WIDTH]
        return {**made, **heads, KEY_WIDTH: keys, VALUE_WIDTH: values, **whole_filters(names)}

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        layers = config["num_hidden_layers"]
        types = [FULL if layer % 4 == 3 else LINEAR for layer in range(layers)]
        return types if FULL in types else [*types[:-1], FULL]

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers, both of which there must be."""
        types = super().types(config)
        must = f"{TYPES} of a {self.model_type} must have a {LINEAR} and a {FULL}"
        need(len(set(types)) == 2, must, f"got {shown(types)}", "load another checkpoint")
        return types

    def shape(self, config: Mapping[str, Any]) -> Shape:
        positions = tuple(POSITIONS[kind] for kind in self.types(config))
        return replace(super().shape(CheckpointConfig(config)), norm_position=positions)

    def config(self, shape: Shape) -> dict[str, Any]:
        types = self.types_of(shape)
        must = f"a {self.model_type} has norm_position pre in layers with a gated DeltaNet, res_post in the others"
        fits = shape.layer_norm_positions == [POSITIONS[kind] for kind in types] and len(set(types)) == 2
        need(fits, f"{must}, and both", f"got {shape.norm_position} with {shape.mixer_spec}", "use save_pretrained")
        made = super().config(replace(shape, norm_position=self.norm_position))
        usual = shape.bindable_sizes["head_width"] * shape.heads == shape.width
        # the key is none of theirs, but counts where it is there
        return {name: value for name, value in made.items() if name != "head_dim" or not usual}

    def recurrent_config(self, shape: Shape, sizes: DeltaRuleSizes) -> dict[str, Any]:
        must = f"the gated DeltaNets of a {self.model_type} have norm_eps={EPS}"
        need(sizes.norm_eps == EPS, must, f"got {sizes.norm_eps}", "use save_pretrained instead")
        return {**super().recurrent_config(shape, sizes), NEGATIVE: sizes.negative_eigenvalues}

    def negative_eigenvalues(self, config: Mapping[str, Any]) -> bool:
        return config[NEGATIVE]

    def delta_eps(self, config: Mapping[str, Any]) -> float:
        return EPS

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config)
        # as published
        if parameters["rope_theta"] is None:
            return NONE
        return rope_spec(parameters, head_width, config["max_position_embeddings"])

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        if shape.scheme_spec == NONE:
            return {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
        return {"rope_parameters": spec_to_rope_parameters(shape.scheme_spec, head_width)}

    def norm_rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules: list[TensorRule] = []
        for layer, kind in enumerate(self.types_of(shape)):
            for ours, name in (PRE_NORMS if kind == LINEAR else self.norms).items():
                there = f"model.layers.{layer}.{FILES.get(name, name)}"
                rules += linear_rules(f"blocks.{layer}.{ours}", there, bias=False)
        return rules

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint: that of files, or that of the models of transformers."""
        other = theirs
        for model, file in FILES.items():
            other = other.replace(f".{file}.", f".{model}.")
        name, inner = (super(OlmoHybrid, self).stored_name(each, names) for each in (theirs, other))
        return inner if name not in names and inner in names else name

    def projection_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        named = {"gate": "g_proj", "rate": "b_proj", "step": "a_proj"}
        parts = tuple(f"{there}.{part}_proj.weight" for part in "qkv")
        return [
            StackedRows(f"{here}.project.weight", parts, _rows(sizes)),
            *(TensorRule(f"{here}.{ours}.weight", (f"{there}.{name}.weight",)) for ours, name in named.items()),
        ]

    def filter_rule(self, sizes: DeltaRuleSizes, there: str, here: str) -> TensorRule:
        whole = self.settings.get(WHOLE, False)
        return filter_rule(f"{here}.convolution.weight", there, _rows(sizes), whole=whole)


def _rows(sizes: DeltaRuleSizes) -> tuple[int, int, int]:
    """Return the rows of queries, keys and values of a gated DeltaNet."""
    keys = sizes.query_heads * sizes.key_width
    return keys, keys, sizes.heads * sizes.value_width
