"""Runners of decoders, encoders, encoder-decoders and vision models."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.models.cache import Cache
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.text_head import READERS
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.pretrained.verification._runner import Runner, TextRunner
from ordinate.pretrained.verification.outputs import Outputs
from ordinate.pretrained.verification.rows import Rows, Text, Texts
from ordinate.pretrained.verification.theirs import with_cache


class HeadRunner(TextRunner):
    """Runner of models whose head may be one of `READERS`."""

    @property
    def classifies(self) -> bool:
        return self.shape.head == "classes"

    @property
    def reads_whole_texts(self) -> bool:
        return self.shape.head in ("classes", "spans")

    def our_logits(self, model: Any, rows: Rows, *inputs: Any) -> Outputs:
        """Compute the logits of the head of the Ordinate model."""
        if self.shape.head == "spans":
            return {"logits": rows.tokens(model.span_logits(rows.values, *inputs).mT)}
        logits = model.class_logits(rows.values, *inputs)
        return {"logits": logits if self.classifies else rows.tokens(logits)}

    def their_logits(self, came: Any, rows: Rows) -> Outputs:
        """Return the logits in what the transformers model returned."""
        if self.shape.head == "spans":
            return {"logits": rows.tokens(torch.stack([came.start_logits, came.end_logits], -1))}
        # a single class of tokens may have no axis there
        single = self.shape.head == "token_classes" and came.logits.ndim == 2
        logits = came.logits[..., None] if single else came.logits
        return {"logits": logits if self.classifies else rows.tokens(logits)}


class DecoderRunner(HeadRunner):
    """Runner of decoders: next-token logits, or those of a classifier; hidden states of those without a head."""

    @property
    def decodes(self) -> bool:
        return self.shape.head not in READERS

    @property
    def reads_one_text(self) -> bool:
        return self.classifies and self.shape.padding is None

    def draw_text(self, length: int) -> Text:
        return Text(self.draw_ids(length, self.shape.vocabulary))

    def ours_once(self, model: Any, texts: Texts) -> Outputs:
        rows, head = texts.ids, self.shape.head
        where = rows.geometry(causal=True)
        if head in READERS:
            return self.our_logits(model, rows, where)
        compute = model.hidden_states if head == "none" else model
        return {self.output: rows.tokens(compute(rows.values, where))}

    def theirs_once(self, model: Any, texts: Texts) -> Outputs:
        rows = texts.ids
        places = self.position_arguments(model, rows.positions)
        came = model(rows.values, attention_mask=rows.mask, use_cache=False, return_dict=True, **places)
        if self.shape.head == "none":
            return {self.output: rows.tokens(came.last_hidden_state)}
        return self.their_logits(came, rows)

    @property
    def output(self) -> str:
        """Name of the compared output: hidden states of a model without a head, otherwise logits."""
        return "hidden states" if self.shape.head == "none" else "logits"

    def steps(self, model: Any, text: Text, start: int, first: int, *, ours: bool) -> Iterator[Tensor]:
        cache, kept, position = Cache(), None, start
        for piece in text.ids[None].split([first] + [1] * (len(text.ids) - first), 1):
            places = torch.arange(position, position + piece.shape[1])
            position += piece.shape[1]
            if ours:
                # later pieces continue the positions of the first
                begins = start > 0 and not len(cache)
                where = Geometry.from_positions(places[None, :, None]) if begins else None
                yield (model.hidden_states if self.shape.head == "none" else model)(piece, where, cache)[0]
                continue
            # as generate does: a Bamba without them counts from 0 in each piece
            told = self.position_arguments(model, places[None])
            came, kept = with_cache(model, kept, input_ids=piece, **told)
            yield (came.last_hidden_state if self.shape.head == "none" else came.logits)[0]


class EncoderRunner(HeadRunner):
    """Runner of encoders: logits of masked tokens, or of classes; or hidden states, and the pooled vector."""

    @property
    def decodes(self) -> bool:
        return False

    @property
    def reads_first_token(self) -> bool:
        return self.classifies and cast(EncoderShape, self.shape).pool == "first"

    def draw_text(self, length: int) -> Text:
        kinds = cast(EncoderShape, self.shape).token_types
        types = torch.randint(kinds, (length,), generator=self.generator) if kinds else None
        return Text(self.draw_ids(length, self.shape.vocabulary), types)

    def ours_once(self, model: Any, texts: Texts) -> Outputs:
        rows, head = texts.ids, self.shape.head
        where = rows.geometry(causal=False)
        if head in READERS:
            return self.our_logits(model, rows, where, texts.token_types)
        x = model(rows.values, where, texts.token_types)
        if head == "masked":
            return {"logits": rows.tokens(model.logits(x))}
        pooled = {"pooled": model.pool(x)} if head == "pooler" and rows.begins_with_tokens else {}
        return {"hidden states": rows.tokens(x), **pooled}

    def theirs_once(self, model: Any, texts: Texts) -> Outputs:
        rows, head, types = texts.ids, self.shape.head, texts.token_types
        told = {} if types is None else {"token_type_ids": types}
        told |= self.position_arguments(model, rows.positions)
        came = model(rows.values, attention_mask=rows.mask, return_dict=True, **told)
        if head in ("masked", *READERS):
            return self.their_logits(came, rows)
        pooled = {"pooled": came.pooler_output} if head == "pooler" and rows.begins_with_tokens else {}
        return {"hidden states": rows.tokens(came.last_hidden_state), **pooled}


class EncoderDecoderRunner(TextRunner):
    """Runner of encoder-decoders: next-token logits of a target, given a source."""

    def draw_text(self, length: int) -> Text:
        shape = cast(EncoderDecoderShape, self.shape)
        source = self.draw_ids(length, shape.source_vocabulary or shape.vocabulary)
        # sources and targets of different lengths
        return Text(self.draw_ids(max(length - 2, 1), shape.vocabulary), None, source)

    def ours_once(self, model: Any, texts: Texts) -> Outputs:
        source, rows = texts.source, texts.ids
        wheres = source.geometry(causal=False), rows.geometry(causal=True)
        return {"logits": rows.tokens(model(source.values, rows.values, *wheres))}

    def theirs_once(self, model: Any, texts: Texts) -> Outputs:
        source, rows = texts.source, texts.ids
        came = model(
            input_ids=source.values,
            attention_mask=source.mask,
            decoder_input_ids=rows.values,
            decoder_attention_mask=rows.mask,
            use_cache=False,
            return_dict=True,
        )
        return {"logits": rows.tokens(came.logits)}

    def steps(self, model: Any, text: Text, start: int, first: int, *, ours: bool) -> Iterator[Tensor]:
        source = cast(Tensor, text.source)[None]
        pieces = text.ids[None].split([first] + [1] * (len(text.ids) - first), 1)
        if ours:
            memory, cache = model.encode_source(source), Cache()
            for piece in pieces:
                yield model.target_logits(piece, memory, cache=cache)[0]
            return
        encoded, kept = model.get_encoder()(source, return_dict=True), None
        for piece in pieces:
            came, kept = with_cache(model, kept, encoder_outputs=encoded, decoder_input_ids=piece)
            yield came.logits[0]


class VisionRunner(Runner):
    """Runner of vision models: class logits; or hidden states, and the pooled vector."""

    reads_texts = False

    @property
    def decodes(self) -> bool:
        return False

    @property
    def classifies(self) -> bool:
        return self.shape.head == "classes"

    def plain_inputs(self) -> Tensor:
        return self.images(*cast(VisionShape, self.shape).image)

    def images(self, height: int, width: int) -> Tensor:
        """Draw images of this size."""
        channels = cast(VisionShape, self.shape).channels
        size = self.rows, channels, height, width
        return torch.randn(size, generator=self.generator, dtype=torch.float32)

    def ours(self, model: Any, inputs: Tensor) -> Outputs:
        shape, x = cast(VisionShape, self.shape), model(inputs)
        if shape.head == "classes":
            return {"logits": model.logits(x)}
        return {"hidden states": x, **({"pooled": model.pool(x)} if shape.head == "pooler" else {})}

    def theirs(self, model: Any, inputs: Tensor) -> Outputs:
        shape = cast(VisionShape, self.shape)
        pixels = inputs.to(next(model.parameters()).dtype)
        # without it, a model that has it refuses images of other sizes; with it, it takes a trained size for a square
        free, other = "interpolate_pos_encoding", tuple(inputs.shape[-2:]) != shape.image
        told = {free: True} if other and free in inspect.signature(model.forward).parameters else {}
        came = model(pixel_values=pixels, return_dict=True, **told)
        if shape.head == "classes":
            return {"logits": came.logits}
        pooled = {"pooled": came.pooler_output} if shape.head == "pooler" else {}
        return {"hidden states": came.last_hidden_state, **pooled}


RUNNERS: Mapping[type, type[Runner]] = {
    Decoder: DecoderRunner,
    Encoder: EncoderRunner,
    EncoderDecoder: EncoderDecoderRunner,
    VisionTransformer: VisionRunner,
}
"""The runner of each class of models."""
