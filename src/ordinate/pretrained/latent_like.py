"""Base class of decoders with multi-head latent attention."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.mixers._latent_options import LatentOptions
from ordinate.mixers.latent import Latent
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.llama_like import LlamaLike, MixerParts
from ordinate.pretrained.rope_parameters import interleaved, rope_parameters, rope_spec, spec_to_rope_parameters

RANK, QUERY_RANK = "kv_lora_rank", "q_lora_rank"
"""The keys of the channels of the latent vectors, of keys and values and of queries."""
CONTENT, ROTATED, VALUE = "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"
"""The keys of the channels of a head: of queries and keys without RoPE and with it, and of values."""
LAYOUT = "rope_interleave"
"""The key of the layout of rotated channel pairs, in families with both."""
HEADS, KEY_HEADS = "num_attention_heads", "num_key_value_heads"
ALL_SCALE = "mscale_all_dim"
"""The key of the factor of YaRN that enters at the scale of the scores."""
# rounding errors of the root and the logarithm in `_with_scale`
ROUNDINGS = 8


class LatentLike(LlamaLike):
    """Llama-like decoders with multi-head latent attention.

    Must: as `LlamaLike`.
    May: `partial_rates`, `half_layout`, `head_dim_counts` and `score_scale`; what `LlamaLike` may.
    """

    usual: ClassVar[Mapping[str, Any]] = {
        name: value for name, value in LlamaLike.usual.items() if name != "head_dim"
    }
    """Default values that families share in which `head_dim` has no effect."""
    partial_rates: ClassVar[bool] = False
    """Whether frequencies that are not scaled follow `partial_rotary_factor`, too."""
    half_layout: ClassVar[bool] = False
    """Whether the channels of a rotated pair are half of them apart, in families with one layout; else adjacent."""
    head_dim_counts: ClassVar[bool] = False
    """Whether a `head_dim` in config.json takes the place of `qk_rope_head_dim`; else it has no effect."""
    optional_biases = ("attention_bias",)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # num_key_value_heads has no effect: each head has a key and a value
        heads, width = config[HEADS], config.get("head_dim")
        must, came = f"head_dim must be {ROTATED}, which it takes the place of", f"got {shown(width)}"
        fits = not self.head_dim_counts or width in (None, config[ROTATED])
        need(fits, must, came, "remove it from config.json")
        plain = super().shape(CheckpointConfig({**config, "head_dim": config[ROTATED], KEY_HEADS: heads}))
        options = LatentOptions(
            rank=config[RANK],
            query_rank=config[QUERY_RANK],
            content_width=config[CONTENT],
            value_width=config[VALUE],
            scale=self.score_scale(config),
            bias=bool(config["attention_bias"]),
        )
        return replace(plain, mixer=latent_spec(options))

    def config(self, shape: Shape) -> dict[str, Any]:
        made, options = super().config(shape), latent_options(shape) or LatentOptions()
        rotated = made.pop("head_dim")
        content, value, rank = options.widths(rotated)
        widths = {CONTENT: content, ROTATED: rotated, VALUE: value}
        return {**made, **widths, RANK: rank, QUERY_RANK: options.query_rank}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=self.partial_rates)
        spec = rope_spec(parameters, head_width, config["max_position_embeddings"])
        half = not config[LAYOUT] if LAYOUT in self.defaults else self.half_layout
        return spec if half else interleaved(spec)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width)
        options = latent_options(shape) or LatentOptions()
        usual = (options.widths(head_width)[0] + head_width) ** -0.5
        made = {"rope_parameters": _with_scale(parameters, usual if options.scale is None else options.scale, usual)}
        layout = catalog.parse(shape.scheme_spec)[1].get("layout", "half")
        return made | ({LAYOUT: layout == "interleaved"} if LAYOUT in self.defaults else {})

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}.self_attn", "blocks.{}.mixer"
        options = latent_options(shape) or LatentOptions()
        direct, biased = options.query_rank is None, options.bias
        down = linear_rules(f"{here}.query_down", f"{there}.q_a_proj", bias=biased)
        down.append(TensorRule(f"{here}.query_norm.weight", (f"{there}.q_a_layernorm.weight",)))
        return [
            *([] if direct else down),
            *linear_rules(f"{here}.query", f"{there}.{'q_proj' if direct else 'q_b_proj'}", bias=False),
            *linear_rules(f"{here}.project", f"{there}.kv_a_proj_with_mqa", bias=biased),
            TensorRule(f"{here}.latent_norm.weight", (f"{there}.kv_a_layernorm.weight",)),
            *linear_rules(f"{here}.expand", f"{there}.kv_b_proj", bias=False),
            *linear_rules(f"{here}.out", f"{there}.o_proj", bias=biased),
        ]

    def _mixers(self, shape: Shape) -> dict[str, MixerParts]:
        """Return the mixer that the family can have with the options of a shape, and what it has."""
        options = latent_options(shape) or LatentOptions()
        return {latent_spec(options): MixerParts(options.bias, options.bias)}

    def score_scale(self, config: Mapping[str, Any]) -> float | None:
        """Return the scale of the scores; None: the usual one."""
        found = {**(config.get("rope_scaling") or config.get("rope_parameters") or {})}
        found["rope_type"] = rope_parameters(config)["rope_type"]
        usual = (config[CONTENT] + config[ROTATED]) ** -0.5
        scale = _scaled(found, usual)
        return None if scale == usual else scale


def latent_spec(options: LatentOptions) -> str:
    """Return the `mixer` of a shape with these options of latent attention."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    plain = {field.name: field.default for field in fields(options)}
    written = [f"variant.{name}={value}" for name, value in given.items() if value != plain[name]]
    return "latent:" + ",".join(written).replace("=True", "=true") if written else "latent"


def latent_options(shape: Shape) -> LatentOptions | None:
    """Return the options of latent attention of a shape; None: it has another mixer, or several."""
    spec = shape.mixer_spec
    if len(set(spec.entries)) > 1 or spec.class_of(0) is not Latent:
        return None
    bound = catalog.bind(Latent, catalog.parse(spec.entries[0])[1], shape.bindable_sizes)
    return bound.get("variant") or LatentOptions()


def _scaled(parameters: Mapping[str, Any], usual: float) -> float:
    """Return the scale of the scores with these RoPE settings, as transformers computes it."""
    share = parameters.get(ALL_SCALE)
    if parameters["rope_type"] == "default" or not share:
        return usual
    factor = parameters.get("factor")
    if not (isinstance(share, int | float) and isinstance(factor, int | float)):
        must, came = (
            f"{ALL_SCALE} of rope_parameters is a number beside a factor",
            f"got {shown(share)}, {shown(factor)}",
        )
        raise ValueError(f"{must}; {came}; load another checkpoint")
    growth = 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0
    return usual * growth * growth


def _with_scale(parameters: dict[str, Any], scale: float, usual: float) -> dict[str, Any]:
    """Return RoPE settings with which transformers computes this scale of the scores.

    Raises:
        ValueError: no such settings.
    """
    if _scaled(parameters, usual) == scale:
        return parameters
    must = f"the scale of the mixer must be that of the {ALL_SCALE} of the scheme"
    came, remedy = f"got {scale} with {parameters}", "leave variant.scale out, or use save_pretrained"
    free = ALL_SCALE not in parameters and parameters["rope_type"] != "default"
    need(free and parameters.get("factor", 1.0) > 1, must, came, remedy)
    share = (math.sqrt(scale / usual) - 1) / (0.1 * math.log(parameters["factor"]))
    for _ in range(ROUNDINGS):
        share = math.nextafter(share, -math.inf)
    for _ in range(2 * ROUNDINGS):
        share = math.nextafter(share, math.inf)
        if _scaled({**parameters, ALL_SCALE: share}, usual) == scale:
            break
    return {**parameters, ALL_SCALE: share}
