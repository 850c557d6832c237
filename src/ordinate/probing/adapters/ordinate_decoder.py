"""Adapter of the decoder of an Ordinate encoder-decoder, or of its cross-attention."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.data.tokenizer import Tokenizer
from ordinate.mixers._projections import AttentionMixer
from ordinate.models.block import Block, CrossAttentionInput, SharedNormParallelBlock
from ordinate.models.encoded_source import EncodedSource
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.probing._adapter import ATTENTION_HOOKS, ForwardOutput, Hooks, Inputs, NotApplicable, Projection
from ordinate.probing.instrumentation.model_parts import (
    KIND_OF_PART,
    LEFT_OUT,
    SOURCE_LENGTH,
    EncodedInputs,
    ModelPart,
    source_of,
    with_memory,
)
from ordinate.probing.instrumentation.observed_attention import HookedAttention
from ordinate.probing.instrumentation.ordinate_hooks import Change, HookedOrdinateModel, as_added
from ordinate.probing.instrumentation.ordinate_layout import ProbedPart, embedding_factor
from ordinate.probing.instrumentation.patching import evaluation_mode, patched_attribute, patched_output
from ordinate.schemes._scheme import Placed, Scheme


class OrdinateDecoder(HookedOrdinateModel):
    """Adapter of the decoder of an Ordinate encoder-decoder, or of its cross-attention.

    Args:
        part: the model and which part.
        name: name for reports.
        tokenizer: its tokenizer; None: none.
        stage: 1, the only one.

    Raises:
        NotApplicable: the reference formula does not reproduce the output of the model.
        ValueError: another stage.
    """

    priority = 4

    def __init__(
        self, part: ModelPart, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        self.source, self.name, self.across = part.source, name, part.name == "cross"
        self.kind, self.left_out = KIND_OF_PART[part.name], LEFT_OUT[part.name]
        super().__init__(cast(Any, part.model), name, tokenizer, stage)

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        there = isinstance(model, ModelPart) and isinstance(model.model, EncoderDecoder)
        return None if there else "it is not the decoder of an Ordinate encoder-decoder"

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        return super().forward(self._encoded(inputs), watch)

    def predict(self, inputs: Inputs) -> Any:
        return super().predict(self._encoded(inputs))

    def run(self, inputs: Inputs) -> Any:
        given = cast(EncodedInputs, inputs)
        return self.model.target_logits(self.given(inputs), given.memory[1])

    def projection(self, layer: int) -> Projection:
        if self.across:
            raise NotApplicable("queries and keys of cross-attention come from different streams: no one projection")
        return super().projection(layer)

    def _body(self) -> ProbedPart:
        """The layers of the decoder."""
        model: EncoderDecoder = self.model
        # `run` of this adapter takes the encoded source too
        return ProbedPart(self.kind, model.decoder, model.tokens, lambda _: None, embedding_factor(model))

    def _describe(self, name: str, schemes: list[Scheme]) -> Any:
        facts = super()._describe(name, schemes)
        shape = self.model.shape
        size = shape.vocabulary if shape.source_vocabulary is None else shape.source_vocabulary
        own = {"first_token": shape.start, "source_vocabulary": size, "left_out": self.left_out}
        return replace(facts, **cast(Any, own))

    def _example(self) -> Inputs:
        source = torch.arange(SOURCE_LENGTH)[None] % self._facts.source_vocabulary
        return replace(self.body.example(self.model), source=source)

    def _encoded(self, inputs: Inputs) -> EncodedInputs:
        if isinstance(inputs, EncodedInputs):
            return inputs
        device = self.body.weight.device
        source = source_of(inputs, self.source, self.name, self._facts.source_vocabulary).to(device)
        with evaluation_mode(self.model, gradients=inputs.gradients):
            y = self.model.encode(source)
            length = self.given(inputs).shape[1] if self.model.needs_target_length else None
            with patched_attribute(self.model, "encode", lambda *_: y):
                memory: EncodedSource = self.model.encode_source(source, length=length)
        return with_memory(inputs, source, (y, memory))

    def _check(self, inputs: Inputs, watch: Hooks) -> None:
        super()._check(inputs, watch)
        if "attention_output" in watch.overridden and isinstance(self.blocks[0], SharedNormParallelBlock):
            raise NotApplicable("parallel layers with one norm add self- and cross-attention as one sum")

    def _need_attention(self, layers: Any) -> None:
        # cross-attention is attention in every layer, whatever mixes the target
        if not self.across:
            super()._need_attention(layers)

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        yield from super()._enter(inputs)
        if inputs.positions is not None:
            moved = partial(_moved, self.model.cross_attention_inputs, inputs.positions)
            yield patched_attribute(self.model, "cross_attention_inputs", moved)

    def _branch(self, watch: Hooks, layer: int, block: Block) -> Change:
        if not self.across:
            return super()._branch(watch, layer, block)
        look = as_added(block, partial(watch.attention_output, layer))
        if block.norms_outputs:
            return patched_output(block.cross_out_norm, look)
        return patched_attribute(block.cross, "cross_attention", partial(_added, block.cross.cross_attention, look))

    def _attend(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        if not self.across:
            yield from super()._attend(inputs, watch)
            return
        formula = bool(watch.overridden & ATTENTION_HOOKS - {"qk_before_rope"}) or inputs.mask is not None
        for layer, (block, index) in enumerate(zip(self.blocks, self.model.cross_scheme_of_layer, strict=True)):
            cross, scheme = block.cross, self.model.cross_schemes[index]
            if formula:
                hooked = HookedAttention(cross, layer, watch, inputs.mask)
                yield patched_attribute(cross, "compute_attention", hooked)
            if "qk_before_rope" in watch.overridden and {"encode_query", "encode_key"} & set(scheme.hooks):
                if not isinstance(inputs, EncodedInputs):
                    must = "queries and keys of cross-attention before positions can be replaced in that part only"
                    raise NotApplicable(f"{must}; replace rot_q and rot_k, or attach the part cross")
                memory = inputs.memory[0]
                yield patched_attribute(
                    cross, "encoded_queries", _BeforeRope(cross, memory, partial(watch.qk_before_rope, layer))
                )
                yield patched_attribute(cross, "attention", partial(_with_new_keys, cross, cross.attention))


class _BeforeRope:
    """Queries for cross-attention that a hook sees before positions are encoded, together with the keys.

    Args:
        cross: the cross-attention of a layer.
        memory: the output of the encoder.
        look: the hook.
    """

    def __init__(self, cross: AttentionMixer, memory: Tokens, look: Callable[..., Any]) -> None:
        self.cross, self.memory, self.look = cross, memory, look
        self.key: Tensor | None = None

    def __call__(self, x: Tokens, at: Placed) -> Tensor:
        """Return the encoded queries; keys that the hook replaces are kept encoded."""
        cross, self.key = self.cross, None
        q, k = cross.project_queries(x), cross.project_keys_values(self.memory)[0]
        new = self.look(q, k) if cross.qk_norm_after else self.look(cross.q_norm(q), cross.k_norm(k))
        if new is not None:
            self.key = cross.encode_key(new[1], at.scheme, at.where.k_pos, normed=not cross.qk_norm_after)
        return cross.encode_query(
            q if new is None else new[0], at, normed=new is not None and not cross.qk_norm_after
        )


def _with_new_keys(cross: AttentionMixer, attend: Callable[..., Any], q: Tensor, k: Tensor, *given: Any) -> Any:
    new = cast(_BeforeRope, cross.encoded_queries).key
    return attend(q, k if new is None else new, *given)


def _added(attend: Callable[..., Tokens], look: Callable[[Tokens], Tokens | None], *given: Any) -> Tokens:
    out = attend(*given)
    new = look(out)
    return out if new is None else new


def _moved(
    inputs: Callable[..., list[CrossAttentionInput]],
    positions: Int[Tensor, "b n"],
    target: Geometry,
    memory: EncodedSource,
) -> Sequence[CrossAttentionInput]:
    """Cross-attention inputs with the target at given positions."""
    moved = positions.to(target.q_pos.device)[..., None]
    return inputs(Geometry.from_positions(moved, causal=True), memory)
