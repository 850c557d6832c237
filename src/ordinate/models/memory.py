"""What a decoder looks at: another sequence, as each of its layers sees it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.mixer import KeyValues
from ordinate.models.cache import take_rows


@dataclass(frozen=True, eq=False)
class Memory:
    """What the decoder looks at: the source as each of its layers sees it, computed once.

    Args:
        layers: the keys and values of the source, for each layer.
        where: where its tokens stand as cross-attention counts, and which are real.
    """

    layers: Sequence[KeyValues]
    where: Geometry

    @property
    def rows(self) -> int:
        """How many sources."""
        return self.layers[0].rows

    def take(self, rows: Int[Tensor, "rows"]) -> "Memory":
        """The memory of these rows of the batch, in this order."""
        return Memory([layer.take(rows) for layer in self.layers], take_rows(self.where, rows))


def across(target: Geometry, source: Geometry) -> Geometry:
    """The tokens of a target, which see all real tokens of the source, or those of their own document."""
    plain = target.q_document is None and source.k_document is None
    pairs = ((target.q_pos, target.q_document), (source.k_pos, source.k_document))
    queries, keys = (pos.new_zeros(pos.shape[:2]).long() if document is None else document for pos, document in pairs)
    return Geometry(
        target.q_pos,
        source.k_pos,
        start=target.start,
        q_document=None if plain else queries,
        k_document=None if plain else keys,
    )
