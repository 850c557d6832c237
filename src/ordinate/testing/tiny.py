"""A transformer small enough to test every scheme in."""

from typing import cast

from torch import nn

from ordinate.geometry import Geometry
from ordinate.mixers.softmax import Softmax
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.feedforward import FeedForward
from ordinate.scheme import Scheme
from ordinate.shapes import Marked, Tokens


class Tiny(nn.Module):
    """Two layers over token vectors: a decoder without vocabulary, around any scheme, of the catalog or not.

    It takes vectors instead of ids, so that a test can put a NaN into one and ask for the gradient of each.

    Args:
        schemes: one for all layers, or one for each.
        width: columns of the model.
        heads: query heads.
        kv_heads: key and value heads.
        layers: blocks.
    """

    def __init__(self, schemes: list[Scheme], *, width: int, heads: int, kv_heads: int, layers: int) -> None:
        super().__init__()
        mixers = [Softmax(width=width, heads=heads, kv_heads=kv_heads) for _ in range(layers)]
        self.blocks = nn.ModuleList(
            Block(mixer, FeedForward("gelu", width, 2 * width), nn.RMSNorm, width, 0.0) for mixer in mixers
        )
        self.schemes = nn.ModuleList(schemes)

    def forward(self, x: Tokens, where: Geometry, cache: Cache | None = None) -> Marked:
        """What the last layer makes of each token; with a cache, `x` are the new ones, and it grows by them."""
        seen = where if cache is None else cache.place(where)
        placed = [cast(Scheme, scheme).at(seen) for scheme in self.schemes]
        x, states = placed[0].embed(x), []
        for layer, block in enumerate(self.blocks):
            state = cache.states[layer] if cache is not None and cache.states else None
            x, state = block(x, placed[layer % len(placed)], state)
            states.append(state)
        if cache is not None:
            cache.states, cache.where = states, seen
        return x
