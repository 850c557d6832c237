"""The original Transformer: a text is read from both sides, and another is written while looking at it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Int
from torch import Tensor, nn

from ordinate.batch import Batch
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.linear import Linear, linear
from ordinate.mixer import State
from ordinate.models.block import Block, Look
from ordinate.models.cache import Cache
from ordinate.models.encoder import real_tokens
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.memory import Memory, across
from ordinate.models.shape import TOKEN_SCALE
from ordinate.models.trunk import Layers, SafetensorsOnly, check_where, need_ids
from ordinate.scheme import Placed, Scheme
from ordinate.seeds import seed_of
from ordinate.shapes import Ids, Logits, SourceIds, Tokens

Lengths = Int[Tensor, "b"] | int


class EncoderDecoder(nn.Module, SafetensorsOnly, PyTorchModelHubMixin):
    """The original Transformer: for each token of a target, how likely each next one is, given a source.

        encoder:  y = layers of Block over the source, each token seeing all
        decoder:  layers of Block over the target x, from left to right; in each, between its two branches,
                  x = x + softmax(q k^T / sqrt(d)) v W_O,   q = norm(x) W_Q,   k = y W_K,   v = y W_V
        logits:   norm(x) W

    `read` gives the keys and values of a source, `write` looks at them; calling the model does both.

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not honour, a mixer
            that does not read from both sides (encoder), from left to right (decoder) or across.
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
    """

    def __init__(self, shape: EncoderDecoderShape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = Layers(shape.source), Layers(shape)
        for block in self.encoder.blocks:
            cast(Block, block).mixer.check_bidirectional()
        for block in self.decoder.blocks:
            cast(Block, block).mixer.check_causal()
        recipe = shape.make_cross_schemes()
        for block, scheme in zip(self.decoder.blocks, recipe.layers, strict=True):
            cast(Block, block).cross.check_scheme(recipe.schemes[scheme])
        self.cross_schemes, self.cross_scheme_of_layer = nn.ModuleList(recipe.schemes), recipe.layers
        theirs, ours = (layers.first_scheme.claims for layers in (self.encoder, self.decoder))
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - ours)
        self.source_tokens = None
        if shape.source_vocabulary is not None:
            self.source_tokens = nn.Embedding(shape.source_vocabulary, shape.width - theirs)
        need(
            self.source_tokens is not None or ours == theirs,
            "one table of tokens serves schemes that leave it as many columns",
            f"got {theirs} of the source's and {ours} of the target's taken",
            "give source_vocabulary, or schemes alike",
        )
        self.head = None if shape.tied else Linear(shape.width, shape.vocabulary, bias=False)
        self.logit_bias = nn.Parameter(torch.zeros(shape.vocabulary)) if shape.logit_bias else None
        self._initialise(seed)

    def forward(
        self, source: SourceIds, target: Ids, source_where: Geometry | None = None, where: Geometry | None = None
    ) -> Logits:
        """The logits of the token after each one of the target, given the source.

        Args:
            source: its tokens.
            target: tokens, the first of them the start.
            source_where: where the source stands: `Geometry.padded(real, causal=False)`; None: all of it is real.
            where: where the target stands: `Geometry.padded(real)`; None: likewise.
        """
        length = None
        if self.scaled_to_length:
            real = None if where is None else real_tokens(where)
            length = target.shape[1] if real is None else real.sum(1)
        return self.write(target, self.read(source, source_where, length), where)

    def answer(self, batch: Batch) -> Logits:
        """The logits of each place of a batch."""
        there = batch.source is not None
        need(there, "an encoder-decoder reads a source", "got a batch without one", "give one of another task")
        places = [
            None if real is None else Geometry.padded(real, causal=causal)
            for real, causal in ((batch.source_real, False), (batch.real, True))
        ]
        return self(cast(Tensor, batch.source), batch.inputs, *places)

    @property
    def scaled_to_length(self) -> bool:
        """Whether cross-attention must know how long the target will be."""
        return self.shape.cross_axis == "scaled" and self.shape.cross_ratio is None

    def encode(self, source: Ids, where: Geometry | None = None) -> Tokens:
        """A vector for each token of the source; 0 at padding."""
        table = self.tokens if self.source_tokens is None else self.source_tokens
        need_ids("the source's ids", source, table)
        where = Geometry.full(source.shape[1], device=source.device) if where is None else where
        check_where(source, where)
        need(
            not where.hides_future,
            "a source is read from both sides",
            "got a causal geometry",
            "build it by Geometry.full, or with causal=False",
        )
        placed, x = self.encoder.place(where), table(source) * self.shape.embedding_scale
        y, _ = self.encoder.run(placed[0].embed(x), placed, None)
        real = real_tokens(where)
        return y if real is None else y.masked_fill(~real[..., None], 0.0)

    def read(self, source: SourceIds, where: Geometry | None = None, length: Lengths | None = None) -> Memory:
        """The keys and values of the source, for each layer of the decoder.

        Args:
            source: its tokens.
            where: where they stand; None: one text, all of it real.
            length: how long each target will be [tokens]; needed where cross-attention scales the source to it.
        """
        y = self.encode(source, where)
        where = Geometry.full(source.shape[1], device=source.device) if where is None else where
        where = self._scaled(where, length)
        schemes = [cast(Scheme, self.cross_schemes[index]) for index in self.cross_scheme_of_layer]
        for scheme in schemes:
            scheme.check_positions(where.k_pos)
        blocks = [cast(Block, block) for block in self.decoder.blocks]
        pairs = zip(blocks, schemes, strict=True)
        return Memory([block.cross.remember(y, scheme, where.k_pos) for block, scheme in pairs], where)

    def write(self, target: Ids, memory: Memory, where: Geometry | None = None, cache: Cache | None = None) -> Logits:
        """The logits of the token after each one of the target.

        Args:
            target: tokens; with a cache, the new ones.
            memory: what `read` gave for the sources.
            where: where they stand; None: one text from left to right, following what the cache holds.
            cache: what was written before; it grows by these tokens.
        """
        need_ids("the target's ids", target, self.tokens)
        if where is None:
            where = (cache or Cache()).following(target.shape[1], target.device)
        check_where(target, where)
        need(where.hides_future, "a target is written from left to right", "got other", "build it by Geometry.causal")
        need(
            memory.rows == target.shape[0],
            "each target has its source",
            f"got {target.shape[0]} and {memory.rows}",
            "give memory.take(rows)",
        )
        seen = where if cache is None else cache.place(where)
        before = None if cache is None else cache.states or [None] * len(self.decoder.blocks)
        x, states = self.decode(target, seen, self.looks(seen, memory), before)
        if cache is not None:
            cache.states, cache.where = states, seen
        return self._logits(x)

    def decode(
        self, target: Ids, seen: Geometry, looks: Sequence[Look], before: Sequence[State | None] | None
    ) -> tuple[Tokens, list[State | None]]:
        """The tokens of a target after all layers, and what each layer remembers."""
        placed = self.decoder.place(seen)
        return self.decoder.run(
            placed[0].embed(self.tokens(target) * self.shape.embedding_scale), placed, before, looks
        )

    def _logits(self, x: Tokens) -> Logits:
        # a scheme that claims columns leaves the table narrower than the model
        table = self.tokens.weight if self.head is None else self.head.weight
        x = x[..., : table.shape[1]] * self.shape.logit_scale
        return linear(x, table, self.logit_bias)

    def looks(self, target: Geometry, memory: Memory) -> list[Look]:
        """What each layer looks at; layers with one scheme share what depends on positions."""
        where = across(target, memory.where)
        placed = [cast(Scheme, scheme).at(where) for scheme in self.cross_schemes]
        places: list[Placed] = [placed[index] for index in self.cross_scheme_of_layer]
        return [Look(seen, at) for seen, at in zip(memory.layers, places, strict=True)]

    def _scaled(self, where: Geometry, length: Lengths | None) -> Geometry:
        """The source where cross-attention sees it."""
        need(
            (length is not None) == self.scaled_to_length,
            "a source that is scaled to the target's length needs it, and no other does",
            f"got {'none' if length is None else 'one'}",
            "give length, or a cross_ratio" if length is None else "leave length out",
        )
        if self.shape.cross_axis == "shared":
            return where
        ratio = self.shape.cross_ratio
        if ratio is None:
            real = real_tokens(where)
            size = torch.tensor([where.shape[1]]) if real is None else real.sum(1)
            ratio = (torch.as_tensor(length).to(size.device) / size.clamp(min=1))[:, None, None]
        return replace(where, k_pos=where.k_pos * ratio, ordered=False)

    def _initialise(self, seed: int) -> None:
        for name in ("encoder", "decoder"):
            cast(Layers, getattr(self, name)).initialise(seed_of(seed, name))
        for name in ("tokens", "source_tokens", "head"):
            module = getattr(self, name)
            if module is not None and not module.weight.is_meta:
                generator = torch.Generator(module.weight.device).manual_seed(seed_of(seed, f"{name}.weight"))
                nn.init.normal_(module.weight, std=TOKEN_SCALE, generator=generator)
