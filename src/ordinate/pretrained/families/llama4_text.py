"""Llama 4."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, TransposedWeight, linear_rules
from ordinate.pretrained.hybrid_like import EARLIER, TYPES
from ordinate.pretrained.llama_like import LlamaLike, MixerParts
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.rope_parameters import NONE, interleaved, rotating_layers, rotating_layers_config
from ordinate.pretrained.sliding_windows import FULL
from ordinate.schemes.log_length import LogLength

CHUNK, CHUNKED = "attention_chunk_size", "chunked_attention"
"""The key of the tokens of a chunk, and the type of layers with chunks."""
WITH_EXPERTS, EVERY, DENSE_WIDTH = "moe_layers", "interleave_moe_layer_step", "intermediate_size_mlp"
"""Keys: the layers with experts, n where every n-th layer has some, the hidden width of layers without."""
ROTATING, NORMED = "no_rope_layers", "use_qk_norm"
"""Keys: a one for each layer with RoPE, and whether their queries and keys are normalised."""
TUNED, LENGTH, BETA = "attn_temperature_tuning", "floor_scale", "attn_scale"
"""Keys: whether queries of layers without RoPE grow with their position, and the numbers of that factor."""
LAYERS = "num_hidden_layers"
THETA = 5e5


class Llama4Text(MoeLike):
    """Llama 4: RoPE and attention in chunks in three of four layers, a temperature by position in the others.

    Experts, whose inputs are multiplied by sigmoids, are in every n-th layer, beside a network that every token has.

    Source: Meta AI 2025, Llama 4, https://ai.meta.com/blog/llama-4-multimodal-intelligence.
    Departs: the temperature follows the position, in transformers the place in memory: padded on the left, a text
        has the factor of the text alone.
    """

    model_type = "llama4_text"
    base_class = "Llama4TextModel"
    causal_lm_class = "Llama4ForCausalLM"
    # transformers has no other
    heads = ()
    router = "router"
    expert_layer = feedforward_name = "feed_forward"
    shared = "shared_expert"
    expert_sizes = frozenset({COUNT, CHOSEN, "intermediate_size"})
    optional_sizes = frozenset({DENSE_WIDTH, *expert_sizes})
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 202_048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        DENSE_WIDTH: 16_384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "pad_token_id": None,
        "rope_theta": THETA,
        CHOSEN: 1,
        COUNT: 16,
        WITH_EXPERTS: None,
        EVERY: 1,
        NORMED: True,
        ROTATING: None,
        "no_rope_layer_interval": 4,
        CHUNK: 8192,
        TYPES: None,
        TUNED: True,
        LENGTH: 8192,
        BETA: 0.1,
        "attention_bias": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm, qk_norm_after = True, True
    qk_norm_key = NORMED
    qk_norm_kind = "nonparametric_rms"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the types of the layers, and which have experts."""
        # of an empty list the default counts
        made, layers = {**super().complete_config(config, names), ROTATING: config[ROTATING] or None}, config[LAYERS]
        rotating = rotating_layers(made)
        if config[TYPES] is None:
            chunks = config[CHUNK] is not None
            made[TYPES] = [CHUNKED if rotates and chunks else FULL for rotates in rotating]
        if config[WITH_EXPERTS] is None:
            made[WITH_EXPERTS] = list(range(config[EVERY] - 1, layers, config[EVERY]))
        return made

    def shape(self, config: Mapping[str, Any]) -> Shape:
        found, size, biased = super().shape(config), config[CHUNK], self._biased(config, self.bias_key)
        types = [EARLIER.get(kind, kind) for kind in config[TYPES]]
        must, came = f"{TYPES} must be {FULL} or {CHUNKED}", f"got {shown(config[TYPES])}"
        need(set(types) <= {FULL, CHUNKED}, must, came, "load another checkpoint")
        must = f"{CHUNK} must be above 1 where layers have chunks: for 1, the cache of transformers keeps all tokens"
        fits = CHUNKED not in types or (size is not None and size > 1)
        need(fits, must, f"got {size}", "correct it, or load another checkpoint")
        mixers = [
            self._layer_mixer(found, biased, rotates and config[NORMED], size if kind == CHUNKED else None)
            for rotates, kind in zip(rotating_layers(config), types, strict=True)
        ]
        return replace(found, mixer=",".join(mixers))

    def config(self, shape: Shape) -> dict[str, Any]:
        layers = _variants(shape)
        sizes = {options["chunk"] for options in layers if "chunk" in options}
        must = f"all chunks of a {self.model_type} have one size"
        need(len(sizes) <= 1, must, f"got mixer={shape.mixer_spec!r}", "use save_pretrained instead")
        return {
            **super().config(self._plain(shape)),
            NORMED: any(options.get("qk_norm") == "true" for options in layers),
            CHUNK: int(min(sizes)) if sizes else None,
            TYPES: [CHUNKED if "chunk" in options else FULL for options in layers],
        }

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        grown = f"log_length:form=llama4,trained_length={config[LENGTH]},beta={config[BETA]}"
        rope, still = interleaved(super().scheme(config, head_width)), grown if config[TUNED] else NONE
        return ",".join(rope if rotates else still for rotates in rotating_layers(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        entries = shape.scheme_spec.entries
        grown = sorted({entry for entry in entries if catalog.parse(entry)[0] == "log_length"})
        must = f"a {self.model_type} has one log_length in all layers without rope, or none"
        fits = len(grown) <= 1 and not (grown and NONE in entries)
        need(fits, must, f"got scheme={shape.scheme_spec!r}", "use save_pretrained instead")
        plain = ",".join(NONE if entry in grown else entry for entry in entries)
        rope, rotating = rotating_layers_config(self.model_type, replace(shape, scheme=plain), head_width, THETA)
        told: dict[str, Any] = {"rope_parameters": rope, ROTATING: [int(rotates) for rotates in rotating]}
        if not grown:
            return told | {TUNED: False}
        made = LogLength(**catalog.bind(LogLength, catalog.parse(grown[0])[1], shape.bindable_sizes))
        return told | {TUNED: True, LENGTH: made.length, BETA: made.beta}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layers, wide = config[LAYERS], config[DENSE_WIDTH]
        dense = tuple(layer for layer in range(layers) if layer not in config[WITH_EXPERTS])
        if len(dense) == layers:
            return {"hidden": wide}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            normalise=False,
            scores="sigmoid",
            weighted_inputs=True,
            shared_hidden=config["intermediate_size"],
            dense_layers=dense,
            dense_hidden=wide if dense else None,
        )
        return {"experts": options}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return {WITH_EXPERTS: [], DENSE_WIDTH: hidden}
        return {
            COUNT: options.count,
            CHOSEN: options.chosen,
            WITH_EXPERTS: [layer for layer in range(shape.layers) if layer not in options.dense_layers],
            DENSE_WIDTH: options.dense_hidden or hidden,
        }

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        return super().attention_rules(self._plain(shape))

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.{self.expert_layer}", f"blocks.{layer}.feedforward"
        return [
            *linear_rules(f"{here}.router", f"{there}.{self.router}", bias=False),
            TransposedWeight(f"{here}.widen.weight", (f"{there}.experts.gate_up_proj",)),
            TransposedWeight(f"{here}.narrow.weight", (f"{there}.experts.down_proj",)),
        ]

    def _layer_mixer(self, shape: Shape, biased: bool, normed: bool, chunk: int | None) -> str:
        """Return the mixer of a layer."""
        plain = self._mixer(shape.norm_eps, {}, MixerParts(biased, biased, normed))
        return plain if chunk is None else f"{plain}{',' if ':' in plain else ':'}variant.chunk={chunk}"

    def _plain(self, shape: Shape) -> Shape:
        """Return the shape with one mixer for all layers, which has their biases."""
        biased = _variants(shape)[0].get("bias") == "true"
        return replace(shape, mixer=self._layer_mixer(shape, biased, False, None))


def _variants(shape: Shape) -> list[dict[str, Any]]:
    """Return the options of attention of each layer, in the words of the specification."""
    parsed = [catalog.parse(entry) for entry in shape.mixer_spec.entries]
    must, came = "a llama4_text requires the mixer softmax in all layers", f"got mixer={shape.mixer_spec!r}"
    need({name for name, _ in parsed} == {"softmax"}, must, came, "use save_pretrained instead")
    return [parsed[layer % len(parsed)][1].get("variant", {}) for layer in range(shape.layers)]
