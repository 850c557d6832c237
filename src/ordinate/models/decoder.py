"""A language model that reads from left to right."""

from typing import cast

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor

from ordinate.batch import Batch
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.linear import Linear, linear
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.shape import Shape
from ordinate.models.trunk import SafetensorsOnly, Trunk
from ordinate.shapes import Ids, Logits, Tokens


class Decoder(Trunk, SafetensorsOnly, PyTorchModelHubMixin):
    """A language model: for each token, how likely each next token is.

        x = table[ids], marked by the scheme;  layers of Block;  logits = norm(x) W

    `save_pretrained(folder)` writes model.safetensors and config.json, `Decoder.from_pretrained(folder)` reads them.

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not honour.
    """

    def __init__(self, shape: Shape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        for block in self.blocks:
            cast(Block, block).mixer.check_causal()
        self.head = None if shape.tied else Linear(shape.width, shape.vocabulary, bias="head" in shape.bias)
        self.initialise(seed)

    def forward(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Logits:
        """The logits of the next token at each place.

        Args:
            ids: tokens; with a cache, the new ones.
            where: where they stand; None: one text from left to right, following what the cache holds.
            cache: what was read before; it grows by these tokens.
        """
        return self._read(self.vectors(ids, where, cache))

    def predict_next(
        self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "b vocabulary"]:
        """The logits of what follows the last place alone: all that writing on needs."""
        return self._read(self.vectors(ids, where, cache)[:, -1:])[:, 0]

    def vectors(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Tokens:
        """The vector of each token after all layers, of which the head makes logits."""
        self.check_ids(ids)
        if not isinstance(cache, Cache | None):
            raise TypeError(f"what was read stands in a Cache; got {type(cache).__name__}; begin with Cache()")
        if where is None:
            where = (cache or Cache()).following(ids.shape[1], ids.device)
        self._check_places(ids, where, cache)
        seen = where if cache is None else cache.place(where)
        placed = self.place(seen)
        before = None if cache is None else cache.states or [None] * len(self.blocks)
        x, states = self.run(placed[0].embed(self.tokens(ids)), placed, before)
        if cache is not None:
            cache.states, cache.where = states, seen
        return x

    def answer(self, batch: Batch) -> Logits:
        """The logits of each place of a batch."""
        return self(batch.inputs, None if batch.real is None else Geometry.padded(batch.real))

    def _read(self, x: Tokens) -> Logits:
        if self.head is not None:
            return self.head(x)
        # a scheme that claims columns leaves the table narrower than the model
        return linear(x[..., : self.tokens.embedding_dim], self.tokens.weight)

    def _check_places(self, ids: Ids, where: Geometry, cache: Cache | None) -> None:
        self.check_where(ids, where)
        need(
            where.hides_future,
            "a decoder reads from left to right",
            "got a geometry that is not causal",
            "build it by Geometry.causal, or with causal=True",
        )
        remembered = 0 if cache is None else len(cache.states)
        need(
            remembered in (0, len(self.blocks)),
            "a cache holds one memory for each layer",
            f"got {remembered} for {len(self.blocks)} layers",
            "use the cache with the model that filled it",
        )
