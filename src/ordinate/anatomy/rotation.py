"""See queries and keys before they are rotated, in models of transformers."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ordinate.anatomy.positions import Change
from ordinate.anatomy.replaced import entering, replaced
from ordinate.shapes import Keys, Queries
from ordinate.subject import Unfit, Watch

ROTATE = "apply_rotary_pos_emb"
"""What nearly every file of transformers calls the function that rotates."""


class Rotations:
    """Hands queries and keys on their way into the function that rotates them to a watch.

    Args:
        watch: what looks on.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch, self.layer = watch, 0
        self.keys: Keys | None = None

    def follow(self, attentions: Sequence[nn.Module]) -> Iterator[Change]:
        """What is changed, for the modules that compute attention, layer by layer."""
        for layer, module in enumerate(attentions):
            yield entering(module, partial(self._begin, layer))
        for space in {sys.modules[type(module).__module__] for module in attentions}:
            if hasattr(space, ROTATE):
                yield replaced(space, ROTATE, partial(self._rotate, getattr(space, ROTATE)))

    def _begin(self, layer: int, _: Tensor) -> None:
        self.layer, self.keys = layer, None

    def _rotate(self, original: Any, first: Tensor, second: Tensor, *given: Any, **named: Any) -> Any:
        if second.ndim == first.ndim:
            q, k = self.watch.raw(self.layer, first, second) or (first, second)
            return original(q, k, *given, **named)
        # GPT-J rotates keys and queries one after the other, tokens before heads
        heads = first.transpose(1, 2)
        if self.keys is None:
            self.keys = heads
        else:
            self._look(heads, self.keys)
        return original(first, second, *given, **named)

    def _look(self, q: Queries, k: Keys) -> None:
        if self.watch.raw(self.layer, q, k) is not None:
            raise Unfit("this model rotates keys before its queries can be seen: change them as they are `marked`")


def unrotated(*given: Any, **named: Any) -> Any:
    """What the function that rotates is given."""
    first, second = [*given, *named.values()][:2]
    return (first, second) if second.ndim == first.ndim else first
