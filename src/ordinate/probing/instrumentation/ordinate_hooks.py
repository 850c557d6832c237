"""Hooks in Ordinate models."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.data.tokenizer import Tokenizer
from ordinate.mixers._projections import AttentionProjections
from ordinate.models.block import Block
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.probing._adapter import (
    ATTENTION_HOOKS,
    ForwardOutput,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    NotApplicable,
    Projection,
)
from ordinate.probing.instrumentation.early_exit import EarlyExit, last_layer_hook
from ordinate.probing.instrumentation.linear_maps import linear_map_matrices, norm_weight
from ordinate.probing.instrumentation.observed_attention import AttentionLayers, HookedAttention
from ordinate.probing.instrumentation.ordinate_layout import ORDINATE_MODELS, ProbedPart
from ordinate.probing.instrumentation.patching import (
    evaluation_mode,
    patched_attribute,
    patched_inputs,
    patched_output,
)
from ordinate.schemes._scheme import Encoded, Placed, Scheme

Change = AbstractContextManager[Any]
Look = Callable[[Tokens], Tokens | None]


def as_added(block: Block, look: Look) -> Look:
    """Return a hook that shows `look` the output of a branch times the factor with which the block adds it."""
    factor = block.dropout.factor

    def scaled(out: Tokens) -> Tokens | None:
        new = look(out * factor)
        return None if new is None else new / factor

    return look if factor == 1 else scaled


class HookedOrdinateModel(ModelAdapter):
    """Base of the adapters of Ordinate models; of an encoder-decoder its encoder is probed.

    Layers without hooks run as usual. With hooks inside attention, or another attention mask, a reference formula
    replaces `attend`; both are compared on construction.

    Args:
        model: the model.
        name: name for reports.
        tokenizer: its tokenizer; None: none.
        stage: 1, the only one.

    Raises:
        NotApplicable: the reference formula does not reproduce the output of the model.
        ValueError: another stage.
    """

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need(stage in (None, 1), "an Ordinate model has one stage", f"got stage {stage}", "leave it out")
        self.model, self.tokenizer = model, tokenizer
        self.body = self._body()
        self.stack = self.body.layers
        self.blocks = [cast(Block, block) for block in self.stack.blocks]
        schemes = [cast(Scheme, scheme) for scheme in self.stack.schemes]
        self.schemes = [schemes[index] for index in self.stack.scheme_of_layer]
        self._facts = self._describe(name, schemes)
        self.attending = self._prove()

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        return None if isinstance(model, ORDINATE_MODELS) else "it is not an Ordinate model"

    @property
    def info(self) -> ModelInfo:
        return self._facts

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        watch = Hooks() if watch is None else watch
        self._check(inputs, watch)
        last, logits = list[Tokens](), None
        mode = evaluation_mode(self.model, gradients=inputs.gradients)
        with suppress(EarlyExit), mode, ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self._attend(inputs, watch)]:
                changes.enter_context(change)
            logits = self.run(inputs)
        return ForwardOutput(last[0], logits)

    def predict(self, inputs: Inputs) -> Float[Tensor, "b places classes"] | None:
        with evaluation_mode(self.model):
            return self.run(inputs)

    def run(self, inputs: Inputs) -> Float[Tensor, "b places classes"] | None:
        """Run a forward pass; return the logits if there is a head."""
        return self.body.run(self.given(inputs))

    def given(self, inputs: Inputs) -> Tensor:
        """Return images or token ids; with embeddings in their place, any ids."""
        held = inputs.images if inputs.ids is None else inputs.ids
        if held is None:
            held = self.body.weight.new_zeros(cast(Tensor, inputs.embeddings).shape[:2], dtype=torch.long)
        return held

    @contextmanager
    def installed(self, watch: Hooks) -> Iterator[None]:
        """Context manager: hooks of this part during passes of another part of the model."""
        self._check(self._example(), watch)
        with ExitStack() as changes:
            for change in [*self._pass(watch, []), *self._attend(Inputs(), watch)]:
                changes.enter_context(change)
            yield

    def skip_connection(self, layer: int, x: Tokens) -> Tokens:
        block = self.blocks[layer]
        return block.before_branch(block.mixer_norm, x)[0]

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """Return the token embeddings; columns that a scheme appends are 0."""
        if self.body.tokens is None:
            raise NotApplicable(f"{self._facts.name} takes images")
        table = self.body.tokens.weight.detach() * self.body.scale
        with evaluation_mode(self.model):
            table = self.body.widened(table)
        return nn.functional.pad(table, (0, self._facts.width - table.shape[1]))

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """Return what the first scheme adds to, or appends to, the token embedding at each position."""
        if "embed" not in self.schemes[0].hooks:
            return super().position_table(length)
        if self.body.tokens is None:
            raise NotApplicable(
                f"{self._facts.name} adds position embeddings to patches by row and column, not by index"
            )
        with evaluation_mode(self.model):
            return self.body.positions(length)

    def projection(self, layer: int) -> Projection:
        self._need_attention([layer])
        block = self.blocks[layer]
        mixer = cast(AttentionProjections, block.mixer)
        if not mixer.own_keys:
            raise NotApplicable(f"layer {layer} has no keys and values of its own")
        like = mixer.project.weight.detach().new_zeros(self._facts.width)
        post = self.stack.shape.layer_norm_positions[layer] == "post"
        without = post or isinstance(block.mixer_norm, nn.Identity)
        norm = None if without else block.mixer_norm
        with evaluation_mode(self.model):
            found, scale = linear_map_matrices(partial(_projected, mixer), like), norm_weight(norm, like)
            size = mixer.value_width * mixer.heads
            unit = torch.eye(size, dtype=like.dtype, device=like.device).unflatten(1, (mixer.heads, -1))
            outputs = unit.transpose(0, 1)[None]
            gathered = mixer.output_projection(outputs) - mixer.output_projection(torch.zeros_like(outputs))
            read = block.dropout(block.mixer_scale(gathered))[0]
        if found is None or scale is None:
            raise NotApplicable(f"queries and keys of layer {layer} are not linear maps of its input")
        query, key, value = found
        read = read.unflatten(0, (mixer.heads, -1))
        return Projection(query, key, value, read, scale, block.norms_outputs, mixer.output_gate is not None)

    def tokenize(self, text: str) -> Int[Tensor, "n"]:
        if self.tokenizer is None:
            return super().tokenize(text)
        return torch.from_numpy(self.tokenizer.encode_plain(text).astype("int64"))

    def _body(self) -> ProbedPart:
        """The probed part of the model."""
        return ProbedPart.from_model(self.model)

    def _describe(self, name: str, schemes: list[Scheme]) -> ModelInfo:
        """Static information about the model."""
        shape, body = self.stack.shape, self.body
        return ModelInfo(
            name=name,
            family="ours",
            kind=body.kind,
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.heads if shape.kv_heads is None else shape.kv_heads,
            width=shape.width,
            vocabulary=0 if body.tokens is None else body.tokens.num_embeddings,
            max_length=self._longest(schemes),
            position=shape.scheme_spec.partition(":")[0],
            first_token=None if self.tokenizer is None else self.tokenizer.prefix_token,
            mask_token=self._mask(),
            start_token=self.model.shape.start if isinstance(self.model, EncoderDecoder) else None,
            prefix=body.prefix,
            grid=body.grid,
            image=body.image,
            dtype=body.weight.dtype,
            special_tokens=self._special_tokens(),
        )

    def _example(self) -> Inputs:
        """A short input."""
        return self.body.example(self.model)

    def _longest(self, schemes: list[Scheme]) -> int | None:
        if self.body.grid is not None:
            return self.body.prefix + math.prod(self.body.grid)
        return min((scheme.max_length for scheme in schemes if scheme.max_length is not None), default=None)

    def _mask(self) -> int | None:
        """The mask token of an encoder: one beyond the vocabulary of its tokenizer, else that of the tokenizer."""
        table, tokenizer = self.body.tokens, self.tokenizer
        if tokenizer is None or table is None or self.body.kind != "encoder":
            return None
        beyond = tokenizer.mask_token is None and tokenizer.size < table.num_embeddings
        return table.num_embeddings - 1 if beyond else tokenizer.mask_token

    def _special_tokens(self) -> frozenset[int]:
        """The special tokens of the model and its tokenizer."""
        shape = self.model.shape
        found: set[int | None] = {shape.padding}
        if self.tokenizer is not None:
            found |= {*self.tokenizer.special_tokens}
        if isinstance(self.model, EncoderDecoder):
            found |= {shape.start, *shape.end_tokens}
        return frozenset(token for token in found if token is not None)

    def _prove(self) -> list[bool]:
        """Return which layers have attention; raise unless an instrumented pass reproduces the model."""
        inputs, seen = self._example(), AttentionLayers()
        self.attending = [True] * len(self.blocks)
        plain, watched_ = self.forward(inputs), self.forward(inputs, seen)
        error = float((plain.residual - watched_.residual).abs().max() / plain.residual.abs().max())
        if not error <= 256 * torch.finfo(self._facts.dtype).eps:
            raise NotApplicable(
                f"the reference formula does not reproduce the output of the model: relative error {error:.1e}"
            )
        return [layer in seen.layers for layer in range(len(self.blocks))]

    def _check(self, inputs: Inputs, watch: Hooks) -> None:
        if (inputs.images is None) != (self.body.tokens is not None):
            raise NotApplicable(f"{self._facts.name} takes {'images' if self.body.tokens is None else 'texts'}")
        if watch.overridden & ATTENTION_HOOKS or inputs.mask is not None:
            self._need_attention(range(len(self.blocks)))
        if inputs.mask is not None and self.stack.shape.second_mixer is not None:
            raise NotApplicable("another attention mask does not reach the second mixer of a layer")
        if "qk_before_rope" in watch.overridden and self.stack.shape.shared_keys:
            raise NotApplicable("layers that attend to the keys of others encode queries alone")
        if "residual" in watch.overridden and self.stack.shape.blocks == "reversible":
            raise NotApplicable("reversible layers have two residual streams")

    def _need_attention(self, layers: Any) -> None:
        others = [type(self.blocks[layer].mixer).__name__ for layer in layers if not self.attending[layer]]
        if others:
            raise NotApplicable(f"there is no attention to instrument in layers of {', '.join(sorted(set(others)))}")

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        """Replace token embeddings and positions."""
        if inputs.embeddings is not None:
            self.body.need_linear_map()
            vectors, tokens = inputs.embeddings[..., : self.body.columns], cast(nn.Module, self.body.tokens)
            if self.body.widen is None:
                yield patched_output(tokens, lambda _: vectors / self.body.scale)
            else:
                # the map has no bias: what is left of its output is positions and token types
                yield patched_output(tokens, torch.zeros_like)
                yield patched_output(self.body.widen, lambda rest: vectors + rest)
        if inputs.positions is not None:
            yield patched_attribute(
                self.stack, "bind_schemes", partial(_moved, self.stack.bind_schemes, inputs.positions)
            )

    def _pass(self, watch: Hooks, last: list[Tokens]) -> Iterator[Change]:
        """Install hooks on the residual stream and on the attention output."""
        for layer, block in enumerate(self.blocks):
            if "residual" in watch.overridden:
                yield patched_inputs(block, partial(_first, partial(watch.residual, layer)))
            if "attention_output" in watch.overridden:
                yield self._branch(watch, layer, block)
        yield patched_inputs(self.stack.norm, partial(_first, last_layer_hook(watch, self._facts.layers, last)))

    def _branch(self, watch: Hooks, layer: int, block: Block) -> Change:
        """Install the hook on the attention output of a layer, as it is added to the residual stream."""
        last = block.mixer_out_norm if block.norms_outputs else block.mixer_scale
        return patched_output(last, as_added(block, partial(watch.attention_output, layer)))

    def _attend(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        """Install the reference formula of attention with hooks."""
        formula = bool(watch.overridden & ATTENTION_HOOKS - {"qk_before_rope"}) or inputs.mask is not None
        for layer, (block, scheme) in enumerate(zip(self.blocks, self.schemes, strict=True)):
            if formula and isinstance(block.mixer, AttentionProjections):
                yield patched_attribute(
                    block.mixer, "compute_attention", HookedAttention(block.mixer, layer, watch, inputs.mask)
                )
            if "qk_before_rope" in watch.overridden and {"encode_query", "encode_key"} & set(scheme.hooks):
                yield patched_inputs(block.mixer, partial(_marking, partial(watch.qk_before_rope, layer)))


def _projected(mixer: AttentionProjections, x: Tokens) -> tuple[Queries, Keys, Values]:
    """Return the queries, keys and values of tokens before norms and positions."""
    found: list[tuple[Queries, Keys, Values]] = []

    def keep(q: Queries, k: Keys, v: Values, *_: object, **__: object) -> Outputs:
        found.append((q, k, v))
        return q.new_zeros(*q.shape[:3], v.shape[3])

    with patched_attribute(mixer, "compute_attention", keep), ExitStack() as norms:
        for norm in (mixer.q_norm, mixer.k_norm):
            norms.enter_context(patched_attribute(norm, "forward", lambda x: x))
        made = Geometry.full if mixer.bidirectional else Geometry.causal
        mixer(x, Scheme().at(made(x.shape[1], device=x.device)), None)
    return found[0]


class _Marking(Placed):
    """A scheme at a geometry that calls a hook with queries and keys before they are encoded."""

    def __init__(self, at: Placed, look: Callable[[Queries, Keys], tuple[Queries, Keys] | None]) -> None:
        super().__init__(at.scheme, at.where)
        self._made, self._look = at._made, look

    def encode(self, q: Queries, k: Keys, *, into: Keys | None = None) -> Encoded:
        return super().encode(*(self._look(q, k) or (q, k)), into=into)


def _marking(look: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, at, *rest = given
    return x, _Marking(at, look), *rest


def _first(look: Callable[[Tokens], Tokens | None], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    new = look(given[0])
    return None if new is None else (new, *given[1:])


def _moved(place: Callable[[Geometry], list[Placed]], positions: Int[Tensor, "b n"], seen: Geometry) -> list[Placed]:
    """Place each scheme at given positions: indices into multi-axis positions, or any integers on one axis."""
    index = positions.to(seen.q_pos.device)
    moved = index[..., None]
    if seen.q_pos.shape[-1] > 1:
        rows = torch.arange(len(index), device=index.device)[:, None]
        moved = seen.q_pos.expand(len(index), -1, -1)[rows, index]
    return place(Geometry.from_positions(moved, causal=seen.is_causal))
