"""Encoder-decoder transformer for sequence-to-sequence tasks (Vaswani et al., 2017)."""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.seeds import derive_seed
from ordinate.core.shapes import Ids, Logits, SourceIds, Tokens
from ordinate.data.batch import Batch
from ordinate.mixers._mixer import MixerState
from ordinate.models.backbone import LayerStack, check_geometry, embedded, need_ids, scaled, soft_capped
from ordinate.models.block import Block, CrossAttentionInput
from ordinate.models.cache import Cache
from ordinate.models.encoded_source import EncodedSource, cross_geometry
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.mixer_layers import check_scheme_sizes
from ordinate.models.saved_model import SavedModel
from ordinate.models.score_changes import NO_TOKEN
from ordinate.models.shape import INITIAL_STD
from ordinate.models.text_head import token_mask
from ordinate.ops.linear_layer import Linear, linear, weight_and_bias
from ordinate.schemes._scheme import Placed, Scheme

TargetLengths = Int[Tensor, "b"] | int


class EncoderDecoder(nn.Module, SavedModel):
    """Encoder-decoder transformer: next-token logits of a target sequence, given a source sequence.

        encoder:  y = layers of Block over the source, bidirectional
        decoder:  layers of Block over the target x, causal; in each, between its two branches, cross-attention
                  x = x + softmax(q k^T / sqrt(d)) v W_O,   q = norm(x) W_Q,   k = y W_K,   v = y W_V
        logits:   norm(x) W

    `encode_source` computes the cross-attention keys and values of a source, `target_logits` the logits of a target;
    calling the model does both.

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not support, a
            mixer without a bidirectional form (encoder), causal form (decoder) or cross-attention.
    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
    """

    shape_class = EncoderDecoderShape

    def __init__(self, shape: EncoderDecoderShape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = LayerStack(shape.encoder_shape), LayerStack(shape)
        for block in self.encoder.blocks:
            for mixer in cast(Block, block).mixers:
                mixer.check_bidirectional()
        for block in self.decoder.blocks:
            for mixer in cast(Block, block).mixers:
                mixer.check_causal()
        recipe = shape.make_cross_attention_schemes()
        for layer, (block, index) in enumerate(zip(self.decoder.blocks, recipe.scheme_of_layer, strict=True)):
            cross, scheme = cast(Block, block).cross, recipe.schemes[index]
            cross.check_scheme(scheme)
            check_scheme_sizes(layer, scheme, cross)
        self.cross_schemes, self.cross_scheme_of_layer = nn.ModuleList(recipe.schemes), recipe.scheme_of_layer
        source_columns, target_columns = (
            layers.first_scheme.appended_width for layers in (self.encoder, self.decoder)
        )
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - target_columns)
        self.source_tokens = None
        if shape.source_vocabulary is not None:
            self.source_tokens = nn.Embedding(shape.source_vocabulary, shape.width - source_columns)
        need(
            self.source_tokens is not None or target_columns == source_columns,
            "a shared token table needs schemes that append equally many columns in encoder and decoder",
            f"got {source_columns} columns in the encoder and {target_columns} in the decoder",
            "give source_vocabulary, or the same scheme in both",
        )
        self.head = None if shape.tie_embeddings else Linear(shape.width, shape.vocabulary, bias=False)
        self.logit_bias = nn.Parameter(torch.zeros(shape.vocabulary)) if shape.logit_bias else None
        self._initialise(seed)

    def gradient_checkpointing_enable(self) -> None:
        """Compute activations again in the backward pass, in encoder and decoder: see `LayerStack`."""
        for layers in (self.encoder, self.decoder):
            layers.gradient_checkpointing_enable()

    def gradient_checkpointing_disable(self) -> None:
        """Store all activations, as a new model does."""
        for layers in (self.encoder, self.decoder):
            layers.gradient_checkpointing_disable()

    def forward(
        self, source: SourceIds, target: Ids, source_where: Geometry | None = None, where: Geometry | None = None
    ) -> Logits:
        """Compute next-token logits at each target position, given the source (teacher forcing).

        Args:
            source: source token ids.
            target: target token ids, beginning with the start token.
            source_where: geometry of the source: `Geometry.padded(real, causal=False)`; None: no padding.
            where: geometry of the target: `Geometry.padded(real)`; None: no padding.
        """
        length = None
        if self.needs_target_length:
            real = token_mask(where)
            length = target.shape[1] if real is None else real.sum(1)
        return self.target_logits(target, self.encode_source(source, source_where, length), where)

    def batch_logits(self, batch: Batch) -> Logits:
        """Return the logits of the decoder at each target position of a batch with sources."""
        there = batch.source is not None
        need(there, "an encoder-decoder needs a source", "got a batch without one", "use a sequence-to-sequence task")
        places = [
            None if real is None else Geometry.padded(real, causal=causal)
            for real, causal in ((batch.source_token_mask, False), (batch.token_mask, True))
        ]
        return self(cast(Tensor, batch.source), batch.inputs, *places)

    @property
    def needs_target_length(self) -> bool:
        """Whether cross-attention positions depend on the target length, which must then be known in advance."""
        return self.shape.cross_axis == "scaled" and self.shape.cross_ratio is None

    def encode(self, source: Ids, where: Geometry | None = None) -> Tokens:
        """Compute the encoder output for each source token; 0 at padding."""
        table = self.tokens if self.source_tokens is None else self.source_tokens
        need_ids("the source's ids", source, table)
        where = Geometry.full(source.shape[1], device=source.device) if where is None else where
        check_geometry(source, where)
        need(
            not where.is_causal,
            "an encoder needs a bidirectional geometry",
            "got a causal one",
            "build it by Geometry.full, or with causal=False",
        )
        placed, x = self.encoder.bind_schemes(where), embedded(table, source, self.shape)
        y, _ = self.encoder.run_layers(placed[0].embed(x), placed, None)
        real = token_mask(where)
        return y if real is None else y.masked_fill(~real[..., None], 0.0)

    def encode_source(
        self, source: SourceIds, where: Geometry | None = None, length: TargetLengths | None = None
    ) -> EncodedSource:
        """Encode a source: compute its cross-attention keys and values for each layer of the decoder.

        Args:
            source: source token ids.
            where: geometry of the source; None: no padding.
            length: length of each target [tokens]; needed if `needs_target_length`.
        """
        y = self.encode(source, where)
        where = Geometry.full(source.shape[1], device=source.device) if where is None else where
        where = self._scaled(where, length)
        schemes = [cast(Scheme, self.cross_schemes[index]) for index in self.cross_scheme_of_layer]
        for scheme in schemes:
            scheme.check_positions(where.k_pos)
        blocks = [cast(Block, block) for block in self.decoder.blocks]
        pairs = zip(blocks, schemes, strict=True)
        layers = [block.cross.project_context(y, scheme, where.k_pos) for block, scheme in pairs]
        real = token_mask(where)
        ids = source.long() if real is None else source.long().masked_fill(~real, NO_TOKEN)
        return EncodedSource(ids, layers, where)

    def target_logits(
        self, target: Ids, memory: EncodedSource, where: Geometry | None = None, cache: Cache | None = None
    ) -> Logits:
        """Compute next-token logits at each target position.

        Args:
            target: target token ids; with a cache, only the new ones.
            memory: encoded sources, from `encode_source`.
            where: geometry of these tokens; None: causal, continuing the cache.
            cache: cache of the previous target tokens; it is extended by these tokens.
        """
        need_ids("the target's ids", target, self.tokens)
        if where is None:
            where = (cache or Cache()).next_geometry(target.shape[1], target.device)
        check_geometry(target, where)
        need(where.is_causal, "a target needs a causal geometry", "got another", "build it by Geometry.causal")
        need(
            memory.batch_size == target.shape[0],
            "each target needs one source",
            lambda: f"got {target.shape[0]} targets and {memory.batch_size} sources",
            "give memory.select_rows(rows)",
        )
        seen = where if cache is None else cache.with_past(where)
        before = None if cache is None else cache.states or [None] * len(self.decoder.blocks)
        x, states = self.decode(target, seen, self.cross_attention_inputs(seen, memory), before)
        if cache is not None:
            cache.states, cache.where = states, seen
        return self._logits(x)

    def decode(
        self,
        target: Ids,
        seen: Geometry,
        cross_inputs: Sequence[CrossAttentionInput],
        before: Sequence[MixerState | None] | None,
    ) -> tuple[Tokens, list[MixerState | None]]:
        """Run the decoder; return its hidden states and the new state of each layer."""
        placed = self.decoder.bind_schemes(seen)
        x = embedded(self.tokens, target, self.shape)
        return self.decoder.run_layers(placed[0].embed(x), placed, before, cross_inputs)

    def _logits(self, x: Tokens) -> Logits:
        # a scheme that appends columns leaves the token table narrower than the model
        table = self.tokens.weight if self.head is None else weight_and_bias(self.head)[0]
        x = scaled(x[..., : table.shape[1]], self.shape.logit_scale)
        return soft_capped(linear(x, table, self.logit_bias), self.shape.logit_softcap)

    def cross_attention_inputs(self, target: Geometry, memory: EncodedSource) -> list[CrossAttentionInput]:
        """Cross-attention inputs of all layers; layers with the same scheme share its position encodings."""
        where = cross_geometry(target, memory.where)
        placed = [cast(Scheme, scheme).at(where) for scheme in self.cross_schemes]
        places: list[Placed] = [placed[index] for index in self.cross_scheme_of_layer]
        return [CrossAttentionInput(seen, at) for seen, at in zip(memory.layers, places, strict=True)]

    def _scaled(self, where: Geometry, length: TargetLengths | None) -> Geometry:
        """Geometry of the source in cross-attention, with positions scaled if the shape says so."""
        need(
            (length is not None) == self.needs_target_length,
            "length is needed exactly if cross-attention scales the source to the target's length",
            f"got {'none' if length is None else 'one'}",
            "give length, or a cross_ratio" if length is None else "leave length out",
        )
        if self.shape.cross_axis == "shared":
            return where
        ratio = self.shape.cross_ratio
        if ratio is None:
            real = token_mask(where)
            size = torch.tensor([where.shape[1]], device=where.k_pos.device) if real is None else real.sum(1)
            ratio = (torch.as_tensor(length).to(size.device) / size.clamp(min=1))[:, None, None]
        return changed(where, k_pos=where.k_pos * ratio, consecutive=False)

    def _initialise(self, seed: int) -> None:
        for name in ("encoder", "decoder"):
            cast(LayerStack, getattr(self, name)).initialise(derive_seed(seed, name))
        for name in ("tokens", "source_tokens", "head"):
            module = getattr(self, name)
            if module is not None and not module.weight.is_meta:
                generator = torch.Generator(module.weight.device).manual_seed(derive_seed(seed, f"{name}.weight"))
                std = INITIAL_STD if name == "head" else self.shape.table_std
                nn.init.normal_(module.weight, std=std, generator=generator)
