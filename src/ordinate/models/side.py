"""Where a model has positional schemes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordinate.models.shape import Shape


@dataclass(frozen=True)
class Side:
    """Where a model has positional schemes: in its layers, or in one of its halves, or between them.

    Args:
        field: what the model's shape calls the line that names them.
        place: what the model calls the list of them.
        shape: the model's shape as these schemes see it, with that line as its scheme.
        across: whether they tell of two texts, and not of one.
    """

    field: str
    place: str
    shape: "Shape"
    across: bool = False
