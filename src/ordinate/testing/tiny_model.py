"""A tiny transformer for testing schemes."""

from typing import cast

from torch import nn

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import EmbeddedTokens, Tokens
from ordinate.mixers.softmax import Softmax
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.feedforward import FeedForward
from ordinate.schemes._scheme import Scheme


class TinyTransformer(nn.Module):
    """A stack of transformer blocks on token embeddings, without vocabulary, for any scheme object.

    It takes embeddings instead of ids, so that a test can insert NaN and compute gradients of its inputs.

    Args:
        schemes: one for all layers, or one for each.
        width: model width.
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

    def forward(self, x: Tokens, where: Geometry, cache: Cache | None = None) -> EmbeddedTokens:
        """Return the output of the last layer; with a cache, `x` are the new tokens, which are appended to it."""
        seen = where if cache is None else cache.with_past(where)
        placed = [cast(Scheme, scheme).at(seen) for scheme in self.schemes]
        x, states = placed[0].embed(x), []
        for layer, block in enumerate(self.blocks):
            state = cache.states[layer] if cache is not None and cache.states else None
            x, state = block(x, placed[layer % len(placed)], state)
            states.append(state)
        if cache is not None:
            cache.states, cache.where = states, seen
        return x
