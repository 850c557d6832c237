"""The layers of Gemma 4."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import PER_LAYER, TensorRule, linear_rules
from ordinate.pretrained.full_layers import READERS, FullLayers, full_layers_of, layer_mixers, shared_keys
from ordinate.pretrained.gemma_like import PeriGemma
from ordinate.pretrained.grouped_rows import StackedRows
from ordinate.pretrained.layer_type_ropes import layer_type_rope, layer_type_ropes_config
from ordinate.pretrained.llama_like import MixerParts
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_windows

FULL_WIDTH, FULL_KEYS = "global_head_dim", "num_global_key_value_heads"
"""The keys of head width and key heads of layers without a window."""
FLAG = "use_bidirectional_attention"
"""The key of whether tokens attend to later ones, all or those of images."""
SAME = "attention_k_eq_v"
"""The key of whether, in layers without a window, values are the keys as projected."""
WIDE = "use_double_wide_mlp"
"""The key of whether the feed-forward of layers that attend to keys of earlier ones is twice as wide."""
HEAD_WIDTH, KEY_HEADS = "head_dim", "num_key_value_heads"
"""The keys of the sizes of a layer that `per_layer_config` sets here."""
# every so many layers have no window, without layer_types
EVERY = 6
ROPES: Mapping[str, Any] = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
"""The RoPE of a config.json without one."""


class Gemma4Like(PeriGemma):
    """Gemma-4-like decoders: norms of values; wider heads and proportional RoPE in layers without a window.

    With `attention_k_eq_v` values of these layers are their keys; the last layers may attend to the keys and values
    of earlier ones.

    Must: as `LlamaLike`.
    """

    # transformers has no other
    heads = ()
    zero_centred = False
    heads_divide_width = False
    qk_norm = True
    optional_sizes = frozenset({FULL_WIDTH, FULL_KEYS})
    usual: ClassVar[Mapping[str, Any]] = {
        **{
            name: value
            for name, value in PeriGemma.usual.items()
            if name not in ("query_pre_attn_scalar", "token_classification_bias")
        },
        "vocab_size": 262_144,
        "num_hidden_layers": 30,
        "final_logit_softcapping": None,
        PER_LAYER: None,
        FULL_WIDTH: 512,
        FULL_KEYS: None,
        SAME: False,
        READERS: 0,
        WIDE: False,
    }
    """Default values that Gemma-4-like families share."""

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        # null has another meaning than a missing key: no layer has sizes of its own
        told = {PER_LAYER: {}} if PER_LAYER in given and given[PER_LAYER] is None else {}
        return super().read_config({**given, **told}, names)

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the types of the layers, of which the last has no window, and the parameters of RoPE."""
        made, count = super().complete_config(config, names), config["num_hidden_layers"]
        types = [SLIDING if (layer + 1) % EVERY else FULL for layer in range(count)]
        types = types if config["layer_types"] is None else list(config["layer_types"])
        ropes = ROPES if config["rope_parameters"] is None else config["rope_parameters"]
        return {**made, "layer_types": [*types[:-1], *([FULL] if types else [])], "rope_parameters": ropes}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        kind = config[FLAG]
        must, came = f"a {self.model_type} is causal, with {FLAG} of null or 'vision'", f"got {shown(kind)}"
        need(kind in (None, "vision"), must, came, "load another checkpoint")
        full = self.full_layers(config)
        windowed = SLIDING in config["layer_types"]
        # without a window anywhere, these are the sizes of the model
        own = {} if windowed else {HEAD_WIDTH: full.head_width, KEY_HEADS: full.kv_heads}
        made = super().shape({**config, FLAG: None, **own})
        mixers = layer_mixers(str(made.mixer_spec), made, full)
        readers = config[READERS]
        return replace(
            made,
            mixer=",".join(mixers),
            shared_keys=shared_keys(config["layer_types"], readers) if readers else (),
            wide_layers=tuple(range(made.layers - readers, made.layers)) if config[WIDE] else (),
            layer_factors=True,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        self._check_layers(shape)
        plain, full = self.plain(shape), full_layers_of(shape)
        wanted, given = layer_mixers(str(plain.mixer_spec), plain, full), shape.mixer_spec.entries
        need(
            [given[layer % len(given)] for layer in range(shape.layers)] == wanted,
            f"a {self.model_type} requires the mixers {','.join(wanted)!r}",
            f"got {shape.mixer_spec!r}",
            "use save_pretrained instead",
        )
        thetas = {kind: rope["rope_theta"] for kind, rope in ROPES.items()}
        widths = {"head_width": plain.bindable_sizes["head_width"], "full_head_width": full.head_width}
        ropes = layer_type_ropes_config(self.model_type, shape, thetas=thetas, **widths)
        kinds = ropes["layer_types"]
        # a model without windows has them as its own
        sizes = {HEAD_WIDTH: full.head_width, KEY_HEADS: full.kv_heads}
        return {
            **super().config(plain),
            **ropes,
            SAME: full.same,
            PER_LAYER: {str(layer): sizes for layer, kind in enumerate(kinds) if kind == FULL},
            **self._reader_config(shape, kinds),
        }

    def _check_layers(self, shape: Shape) -> None:
        """Raise a ValueError unless the family has such layers."""
        must, came = f"a {self.model_type} has layer_factors", "got layer_factors=False"
        need(shape.layer_factors, must, came, "use save_pretrained instead")
        must = f"a {self.model_type} has no experts and no layer_input_width"
        bare, came = shape.experts is None and shape.layer_input_width is None, f"got experts={shape.experts}"
        need(bare, must, f"{came}, layer_input_width={shape.layer_input_width}", "use save_pretrained instead")
        must = f"the last layer of a {self.model_type} has no window, as transformers makes it so"
        came = f"got sliding_windows={shape.sliding_windows}"
        need(shape.layer_windows[-1] is None, must, came, "use save_pretrained instead")

    def _reader_config(self, shape: Shape, kinds: Sequence[str]) -> dict[str, Any]:
        """Return the config.json keys of layers that attend to keys of others; raise a ValueError for other ones."""
        readers = sum(owner != layer for layer, owner in enumerate(shape.shared_keys))
        must = f"the last layers of a {self.model_type} share the keys of the last earlier one of their type"
        fits = not readers or shape.shared_keys == shared_keys(kinds, readers)
        need(fits, must, f"got shared_keys={shape.shared_keys}", "use save_pretrained instead")
        wide, those = tuple(sorted(shape.wide_layers)), tuple(range(shape.layers - readers, shape.layers))
        must = f"in a {self.model_type} the feed-forward of the layers that share keys may be wider, in all of them"
        need(wide in ((), those), must, f"got wide_layers={wide}", "use save_pretrained instead")
        return {READERS: readers, WIDE: bool(wide)}

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        return frozenset({FULL_WIDTH, FULL_KEYS} if self.settings.get(PER_LAYER) is None else ())

    def full_layers(self, config: Mapping[str, Any]) -> FullLayers:
        """Return what layers without a window have; raise a ValueError for sizes of single layers."""
        given, heads = config[PER_LAYER], config[KEY_HEADS] or config["num_attention_heads"]
        if given is None:
            keys = config[FULL_KEYS] if config[SAME] else None
            return FullLayers(config[FULL_WIDTH], heads if keys is None else keys, config[SAME])
        usual = {HEAD_WIDTH: config[HEAD_WIDTH], KEY_HEADS: heads}
        told = {name: dict(value) for name, value in given.items() if isinstance(value, Mapping)}
        must = f"{PER_LAYER} must set {HEAD_WIDTH} and {KEY_HEADS} of layers only"
        layers = {str(layer) for layer in range(config["num_hidden_layers"])}
        named = {name.lstrip("0") or "0" for name in told} <= layers and len(told) == len(given)
        keys = {key for value in told.values() for key in value} <= {*usual}
        whole = all(type(size) is int and size > 0 for value in told.values() for size in value.values())
        need(named and keys and whole, must, f"got {shown(given)}", "load another checkpoint")
        by_layer = {int(name): value for name, value in told.items()}
        sizes = [usual | by_layer.get(layer, {}) for layer in range(config["num_hidden_layers"])]
        kinds = list(zip(config["layer_types"], sizes, strict=True))
        full = next(size for kind, size in reversed(kinds) if kind == FULL)
        wanted = {FULL: full, SLIDING: usual}
        must = f"{PER_LAYER} must give all layers without a window the same sizes, and the others those of the model"
        fits = all(size == wanted.get(kind, size) for kind, size in kinds)
        need(fits, must, f"got {shown(given)}", "load another checkpoint")
        return FullLayers(full[HEAD_WIDTH], full[KEY_HEADS], config[SAME])

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        full, beside = self.full_layers(config), {**config, "rope_scaling": None}
        ropes = {
            kind: layer_type_rope(beside, kind, width, scaled=False, theta=None)
            for kind, width in ((SLIDING, head_width), (FULL, full.head_width))
            if kind in config["layer_types"]
        }
        if full.head_width != head_width and ropes[FULL] != "none":
            ropes[FULL] = f"{ropes[FULL]},head_width={full.head_width}"
        return ",".join(ropes[kind] for kind in config["layer_types"])

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        # written with the types of the layers, whose heads have several widths
        return {}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        return {"scale": 1.0}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        must, came = f"the mixer of a {self.model_type} has scale=1.0", f"got {scores['scale']}"
        need(scores["scale"] == 1.0, must, came, "use save_pretrained instead")
        return {}

    def plain(self, shape: Shape) -> Shape:
        """Return the shape of a model whose layers are all like those with a window."""
        biased = is_biased(shape)
        mixer = self._mixer(shape.norm_eps, {"scale": 1.0}, MixerParts(biased, biased, normed=True))
        return replace(shape, mixer=mixer, shared_keys=(), wide_layers=())

    def _mixer(self, norm_eps: float | None, scores: Mapping[str, float | None], parts: MixerParts) -> str:
        return f"{super()._mixer(norm_eps, scores, parts)},variant.value_norm=true"

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return [*super().rules(shape), TensorRule("blocks.{}.factor", ("model.layers.{}.layer_scalar",))]

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        full, heads, rules = full_layers_of(shape), shape.heads, list[TensorRule]()
        biased = is_biased(shape)
        width, keys = shape.bindable_sizes["head_width"], shape.heads if shape.kv_heads is None else shape.kv_heads
        owners = shape.shared_keys or tuple(range(shape.layers))
        for layer, window in enumerate(shape.layer_windows):
            there, here = f"model.layers.{layer}.self_attn", f"blocks.{layer}.mixer"
            size, count = (full.head_width, full.kv_heads) if window is None else (width, keys)
            parts = "q" if owners[layer] != layer else "qk" if window is None and full.same else "qkv"
            rows = [heads * size if part == "q" else count * size for part in parts]
            for end in ("weight", "bias") if biased else ("weight",):
                names = tuple(f"{there}.{part}_proj.{end}" for part in parts)
                rules.append(StackedRows(f"{here}.project.{end}", names, tuple(rows)))
            rules += linear_rules(f"{here}.out", f"{there}.o_proj", bias=biased)
            rules += [TensorRule(f"{here}.{x}_norm.weight", (f"{there}.{x}_norm.weight",)) for x in parts[:2]]
        return rules

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor without a place here is ignored: keys and values of a layer that attends to others'."""
        readers = [layer for layer, owner in enumerate(shape.shared_keys) if owner != layer]
        parts = ("k_proj", "v_proj", "k_norm", "v_norm")
        starts = tuple(f"layers.{layer}.self_attn.{part}." for layer in readers for part in parts)
        return super().ignores(name, shape) or name.removeprefix(self.prefix).startswith(starts or ("\0",))


def is_biased(shape: Shape) -> bool:
    """Return whether the projections of a shape have biases, by the mixer of the first layer."""
    return catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {}).get("bias") == "true"
