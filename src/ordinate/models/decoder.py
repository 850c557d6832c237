"""Decoder-only (causal) language model."""

from typing import cast

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.data.batch import Batch
from ordinate.models.backbone import Backbone, StrictSafetensors
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.shape import Shape
from ordinate.ops.linear_layer import Linear, linear


class Decoder(Backbone, StrictSafetensors, PyTorchModelHubMixin):
    """Decoder-only (causal) language model: next-token logits at each position.

        x = embedding_scale * table[ids], with position embeddings if the scheme has any;  layers of Block;
        logits = norm(x) W

    `save_pretrained(folder)` writes model.safetensors and config.json, `Decoder.from_pretrained(folder)` reads them.

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not support.
    """

    def __init__(self, shape: Shape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        for block in self.blocks:
            cast(Block, block).mixer.check_causal()
        own = shape.has_head and not shape.tie_embeddings
        self.head = Linear(shape.width, shape.vocabulary, bias="head" in shape.bias) if own else None
        self.initialise(seed)

    def forward(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Logits:
        """Compute next-token logits at each position.

        Args:
            ids: token ids; with a cache, only the new ones.
            where: geometry of these tokens; None: causal, continuing the cache.
            cache: cache of the previous tokens; it is extended by these tokens.
        """
        return self._logits(self.hidden_states(ids, where, cache))

    def next_token_logits(
        self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "b vocabulary"]:
        """Next-token logits of the last position only, as generation needs them."""
        return self._logits(self.hidden_states(ids, where, cache)[:, -1:])[:, 0]

    def hidden_states(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Tokens:
        """Final hidden state of each token, the input of the output head."""
        self.check_ids(ids)
        if not isinstance(cache, Cache | None):
            raise TypeError(f"cache must be a Cache; got {type(cache).__name__}; start with Cache()")
        if where is None:
            where = (cache or Cache()).next_geometry(ids.shape[1], ids.device)
        self._check_places(ids, where, cache)
        seen = where if cache is None else cache.with_past(where)
        placed = self.bind_schemes(seen)
        before = None if cache is None else cache.states or [None] * len(self.blocks)
        x, states = self.run_layers(placed[0].embed(self.embed_tokens(ids)), placed, before)
        if cache is not None:
            cache.states, cache.where = states, seen
        return x

    def batch_logits(self, batch: Batch) -> Logits:
        """Logits of a batch."""
        return self(batch.inputs, None if batch.token_mask is None else Geometry.padded(batch.token_mask))

    def _logits(self, x: Tokens) -> Logits:
        need(
            self.shape.has_head,
            "logits need a decoder with an output head",
            "this one has none (has_head=False)",
            "call hidden_states, or load a checkpoint with a language-model head",
        )
        if self.head is not None:
            return self.head(x)
        # a scheme that appends columns leaves the token table narrower than the model
        return linear(x[..., : self.tokens.embedding_dim], self.tokens.weight)

    def _check_places(self, ids: Ids, where: Geometry, cache: Cache | None) -> None:
        self.check_geometry(ids, where)
        need(
            where.is_causal,
            "a decoder needs a causal geometry",
            "got a geometry that is not causal",
            "build it by Geometry.causal, or with causal=True",
        )
        cached = 0 if cache is None else len(cache.states)
        need(
            cached in (0, len(self.blocks)),
            "a cache must have one state for each layer",
            f"got {cached} for {len(self.blocks)} layers",
            "use the cache with the model that filled it",
        )
