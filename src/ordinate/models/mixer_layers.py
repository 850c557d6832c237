"""Checks of models whose layers have a mixer only, without a feed-forward."""

from collections.abc import Sequence

from ordinate.core.checks import need


def check_mixer_layers(given: tuple[object, object], bias: Sequence[str], norm_position: str, blocks: str) -> None:
    """Raise unless the options are those of layers without a feed-forward.

    Args:
        given: `hidden` and `experts`; None: not given.
        bias: which parts have biases.
        norm_position: position of the norms.
        blocks: kind of layers.

    Raises:
        ValueError: an option without effect, or layers that need a feed-forward.
    """
    inert = [name for name, value in zip(("hidden", "experts"), given, strict=True) if value is not None]
    inert += [f"bias={place!r}" for place in bias if place not in ("norm", "head")]
    need(
        not inert,
        "options of the feed-forward need one",
        f"got {', '.join(inert)} with feedforward='none'",
        "leave them out, or give a feedforward",
    )
    need(
        norm_position not in ("parallel", "shared") and blocks == "plain",
        "parallel and reversible layers need a feedforward",
        f"got norm_position={norm_position!r} and blocks={blocks!r} with feedforward='none'",
        "give norm_position='pre' and blocks='plain', or a feedforward",
    )
