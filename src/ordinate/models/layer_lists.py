"""Options of a model with one value for each layer, or a few that are cycled over the layers."""

from typing import Any

from ordinate.core.checks import need, need_known
from ordinate.models.block import BLOCK_CLASSES, NormPosition

Positions = NormPosition | tuple[NormPosition, ...]
"""Position of the norms of all layers, or of each, cycled over the layers."""


def check_layer_lists(layers: int, **counts: int) -> None:
    """Raise a ValueError unless the numbers of values that are cycled over the layers divide that of the layers."""
    for name, count in counts.items():
        need(
            count > 0 and layers % count == 0,
            f"the number of {name.replace('_', ' ')} must divide the number of layers",
            f"got {count} for {layers} layers",
            "give one for each layer, or a number that divides it",
        )


def one_or_each(given: Any) -> Any:
    """Return the positions of the norms as a shape has them: a single one where all are the same, else a tuple.

    Raises:
        ValueError: an unknown position; the nearest is suggested.
    """
    each = tuple(given) if isinstance(given, list | tuple) else (given,)
    for position in each:
        need_known("norm_position", position, BLOCK_CLASSES)
    return each[0] if len(set(each)) == 1 else each


def of_each_layer(given: Positions, layers: int) -> list[NormPosition]:
    """Return the position of the norms of each layer."""
    each = (given,) if isinstance(given, str) else given
    return [each[layer % len(each)] for layer in range(layers)]
