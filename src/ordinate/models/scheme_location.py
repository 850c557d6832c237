"""Where a model has positional schemes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SchemeLocation:
    """One location of positional schemes in a model: its layers, its encoder or decoder, or its cross-attention.

    Args:
        shape_field: field of the model's shape that specifies these schemes.
        module_path: attribute path of their module list in the model.
        shape: hyperparameters as these schemes see them, with their specification as `scheme`.
        is_cross_attention: whether they are used in cross-attention, between two sequences.
    """

    shape_field: str
    module_path: str
    shape: Any
    is_cross_attention: bool = False
