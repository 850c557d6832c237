"""Encoded source of an encoder-decoder: cross-attention keys and values of each decoder layer."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.mixers._mixer import KVCache
from ordinate.models.cache import select_rows


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """Encoded source: its cross-attention keys and values for each layer of the decoder, computed once.

    Args:
        ids: token ids of the source, -1 at padding.
        layers: keys and values of the source, for each decoder layer.
        where: geometry of the source in cross-attention: positions, possibly scaled, and padding.
    """

    ids: Int[Tensor, "b n"]
    layers: Sequence[KVCache]
    where: Geometry

    @property
    def batch_size(self) -> int:
        """Number of sources (batch size)."""
        return self.layers[0].batch_size

    def select_rows(self, rows: Int[Tensor, "rows"]) -> "EncodedSource":
        """Select rows of the batch, in the given order."""
        layers = [layer.select_rows(rows) for layer in self.layers]
        return EncodedSource(self.ids[rows], layers, select_rows(self.where, rows))


def cross_geometry(target: Geometry, source: Geometry) -> Geometry:
    """Cross-attention geometry: target tokens attend to all real source tokens (packed: of their own document)."""
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
