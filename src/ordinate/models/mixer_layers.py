"""Checks of the options that depend on what the layers of a model consist of: mixers and feed-forward."""

from collections.abc import Callable, Sequence
from typing import Any

from ordinate.core.checks import need, need_positive_counts
from ordinate.mixers._mixer import Mixer
from ordinate.mixers._spec import MixerSpec
from ordinate.mixers.softmax import Softmax
from ordinate.schemes._scheme import Scheme


def check_mixer_layers(
    given: tuple[object, object, object], bias: Sequence[str], norm_positions: Sequence[str], blocks: str
) -> None:
    """Raise unless the options are those of layers without a feed-forward.

    Args:
        given: `hidden`, `experts` and `mixer_only_layers`; None: not given.
        bias: which parts have biases.
        norm_positions: position of the norms of each layer.
        blocks: kind of layers.

    Raises:
        ValueError: an option without effect, or layers that need a feed-forward.
    """
    names = "hidden", "experts", "mixer_only_layers"
    inert = [name for name, value in zip(names, given, strict=True) if value is not None]
    inert += [f"bias={place!r}" for place in bias if place not in ("norm", "head")]
    need(
        not inert,
        "options of the feed-forward need one",
        f"got {', '.join(inert)} with feedforward='none'",
        "leave them out, or give a feedforward",
    )
    named = " and ".join(map(repr, sorted(set(norm_positions))))
    need(
        not {"parallel", "shared"} & set(norm_positions) and blocks == "plain",
        "parallel and reversible layers need a feedforward",
        f"got norm_position={named} and blocks={blocks!r} with feedforward='none'",
        "give norm_position='pre' and blocks='plain', or a feedforward",
    )


def check_mixer_only_layers(
    bare: Sequence[int], dense: Sequence[int], norm_positions: Sequence[str], blocks: str
) -> None:
    """Raise unless some layers can be without a feed-forward.

    Args:
        bare: these layers, counted from 0.
        dense: layers without experts, in a model with some.
        norm_positions: position of the norms of each layer.
        blocks: kind of layers.

    Raises:
        ValueError: a layer that does not exist or is named twice, no layer with a feed-forward, or with experts in a
            model with some, or a layer that needs a feed-forward.
    """
    layers, named = range(len(norm_positions)), {*bare, *dense}
    must = f"mixer_only_layers must be different layers from 0 to {layers[-1]}, and leave one with a feed-forward"
    fits = all(isinstance(layer, int) and layer in layers for layer in bare) and len(set(bare)) == len(bare)
    need(fits and len(bare) < len(layers), must, f"got {tuple(bare)}", "correct them; feedforward='none' is for all")
    must = "dense_layers of the experts have a feed-forward, and leave a layer with experts"
    fits = not bare or (not set(bare) & set(dense) and len(named) < len(layers))
    need(fits, must, f"got {tuple(dense)} with mixer_only_layers={tuple(bare)}", "correct both")
    needing = [layer for layer in bare if norm_positions[layer] in ("parallel", "shared")]
    must = "parallel and reversible layers need a feed-forward"
    came = f"got norm_position={norm_positions[needing[0]]!r} in layer {needing[0]}" if needing else f"got {blocks!r}"
    need(not needing and (not bare or blocks == "plain"), must, came, "leave them out of mixer_only_layers")


def check_head_width(width: int | None, mixers: MixerSpec) -> None:
    """Raise unless the width of a head is that of a mixer; None: it is not given."""
    layers = range(len(mixers.entries))
    need(
        width is None or any(mixers.takes("head_width", width, layer) for layer in layers),
        "head_width needs a mixer with that option, and without another value of it",
        f"got head_width={width} for {', '.join(sorted({mixers.class_of(layer).__name__ for layer in layers}))}",
        "leave it out, or choose an attention mixer",
    )


def check_scheme_sizes(layer: int, scheme: Scheme, mixer: Mixer[Any]) -> None:
    """Raise a ValueError unless the scheme of a layer was built for the heads of its mixer."""
    for size, wanted in (("heads", getattr(mixer, "heads", None)), ("head_width", mixer.encoded_width)):
        came = getattr(scheme, size, None)
        need(
            wanted is None or came is None or wanted == came,
            f"a scheme must be built for the {size} of its mixer",
            f"got {type(scheme).__name__} for {came} and {type(mixer).__name__} for {wanted} in layer {layer}",
            "leave heads and head_width out of both, so that they have those of the model",
        )


def need_shareable_keys(mixer: Mixer[Any], layer: int) -> Softmax:
    """Return the mixer of a layer; raise a ValueError unless it can attend to the keys of another layer."""
    if not isinstance(mixer, Softmax):
        must, came = (
            "a layer without keys of its own needs the mixer softmax",
            f"{type(mixer).__name__} in layer {layer}",
        )
        raise ValueError(f"{must}; got {came}; give it there, or leave shared_keys out")
    return mixer


def check_shared_keys(layers: Sequence[tuple[Mixer[Any], Scheme]], owners: Sequence[int]) -> None:
    """Raise unless each layer can attend to the keys and values of its owner.

    Args:
        layers: mixer and scheme of each layer.
        owners: for each layer, the layer whose keys and values it attends to; (): each attends to its own.

    Raises:
        ValueError: other sizes of heads, another scheme, or one that needs the projections of a layer.
    """
    for layer, owner in enumerate(owners):
        if layer == owner:
            continue
        (mixer, scheme), (other, same) = layers[layer], layers[owner]
        must = "layers that share keys and values have the same scheme, and heads of the same sizes"
        fits = scheme is same and isinstance(other, Softmax) and isinstance(mixer, Softmax)
        fits = fits and mixer.head_sizes == other.head_sizes
        need(fits, must, f"layers {owner} and {layer} differ", "give them the same, or leave shared_keys out")
        needy = "bind_projections" in scheme.hooks
        must, came = "layers that share keys need a scheme without projections", f"got {type(scheme).__name__}"
        need(not needy, must, came, "choose another scheme, or leave shared_keys out")


def takes_kv_heads(mixers: MixerSpec, count: int) -> bool:
    """Return whether some of these mixers would have this number of key and value heads, if their model has it."""
    return any(mixers.takes("kv_heads", count, layer) for layer in range(len(mixers.entries)))


def check_kv_heads(name: str, count: int | None, heads: int, takes: Callable[[int], bool]) -> None:
    """Raise unless a number of key and value heads has an effect, or is that of the query heads.

    Args:
        name: name of the option.
        count: the number; None: not given.
        heads: query heads.
        takes: whether some mixer would have this number.

    Raises:
        ValueError: a number that is not positive, or no mixer would have it.
    """
    if count is None:
        return
    need_positive_counts(**{name: count})
    need(
        count == heads or takes(count),
        f"{name} needs a mixer with the option kv_heads, and without another value of it",
        f"got {name}={count}, which no mixer of the model takes",
        "leave it out, or choose a mixer that has them, such as softmax",
    )
