"""Our own models."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.anatomy.body import OURS, Body
from ordinate.anatomy.formula import Plainly, Seen
from ordinate.anatomy.leaving import Enough, leaving
from ordinate.anatomy.matrices import gain, matrices
from ordinate.anatomy.replaced import at_rest, changed, hooked, replaced
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.models.block import Block
from ordinate.projections import Projections
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.subject import ATTENTION, Facts, Inputs, Projection, Reading, Subject, Unfit, Watch
from ordinate.tokenizer import Tokenizer

Change = AbstractContextManager[Any]


class Own(Subject):
    """A model of ours, read through its own parts; of an encoder-decoder the encoder.

    What is not watched is computed as always. Where attention is watched, or who sees whom is given, the plain
    formula stands in the place of `attend`; both are compared when the subject is made.

    Args:
        model: the model.
        name: what it is called.
        tokenizer: makes tokens of a text; None: there is none.
        stage: 1, the only one.

    Raises:
        Unfit: the plain formula does not give what the model gives.
        ValueError: another stage.
    """

    order = 0

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need(stage in (None, 1), "a model of ours has one stage", f"got stage {stage}", "leave it out")
        self.model, self.tokenizer, self.body = model, tokenizer, Body.of(model)
        self.stack = self.body.layers
        self.blocks = [cast(Block, block) for block in self.stack.blocks]
        schemes = [cast(Scheme, scheme) for scheme in self.stack.schemes]
        self.schemes = [schemes[place] for place in self.stack.scheme_of_layer]
        shape, body = self.stack.shape, self.body
        self._facts = Facts(
            name=name,
            family="ours",
            kind=body.kind,
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.heads if shape.kv_heads is None else shape.kv_heads,
            width=shape.width,
            vocabulary=0 if body.tokens is None else body.tokens.num_embeddings,
            max_length=self._longest(schemes),
            position=shape.scheme.partition(":")[0],
            first_token=None if tokenizer is None else tokenizer.first,
            mask_token=self._mask(),
            prefix=body.prefix,
            grid=body.grid,
            image=body.image,
            dtype=body.weight.dtype,
        )
        self.attending = self._prove()

    @classmethod
    def refuses(cls, model: object) -> str | None:
        """Why it is no model of ours."""
        return None if isinstance(model, OURS) else "it is none of our models"

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        return self._facts

    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass, in evaluation mode, without gradients, watched."""
        watch = Watch() if watch is None else watch
        self._check(inputs, watch)
        given, last, logits = inputs.images if inputs.ids is None else inputs.ids, [], None
        if given is None:
            given = self.body.weight.new_zeros(cast(Tensor, inputs.vectors).shape[:2], dtype=torch.long)
        with suppress(Enough), at_rest(self.model), ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self._attend(inputs, watch)]:
                changes.enter_context(change)
            logits = self.body.run(given)
        return Reading(last[0], logits)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """The vectors that tokens enter by; 0 in columns that a scheme appends."""
        if self.body.tokens is None:
            raise Unfit(f"{self._facts.name} reads images")
        table = self.body.tokens.weight.detach() * self.body.scale
        return nn.functional.pad(table, (0, self._facts.width - table.shape[1]))

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """What the first scheme adds to a token of each position, or appends."""
        if "embed" not in self.schemes[0].hooks:
            return super().position_table(length)
        if self.body.tokens is None:
            raise Unfit(f"{self._facts.name} adds vectors to patches, which stand in rows and columns")
        with at_rest(self.model):
            nothing = self.body.weight.new_zeros(1, length, self.body.columns)
            return self.schemes[0].at(Geometry.causal(length, device=nothing.device)).embed(nothing)[0]

    def projection(self, layer: int) -> Projection:
        """The matrices of a layer's queries, keys and values, before any norm of queries and keys."""
        self._need_attention([layer])
        block = self.blocks[layer]
        mixer = cast(Projections, block.mixer)
        like = mixer.project.weight.detach().new_zeros(self._facts.width)
        norm = None if self.stack.shape.order == "post" else block.mixer_norm
        with at_rest(self.model):
            found, scale = matrices(partial(_projected, mixer), like), gain(norm, like)
            size = mixer.head_width * self._facts.heads
            unit = torch.eye(size, dtype=like.dtype, device=like.device).unflatten(1, (self._facts.heads, -1))
            outputs = unit.transpose(0, 1)[None]
            gathered = mixer.gather(outputs) - mixer.gather(torch.zeros_like(outputs))
            read = block.mixer_scale(gathered)[0]
        if found is None or scale is None:
            raise Unfit(f"layer {layer} makes its queries and keys by no matrix")
        query, key, value = found
        return Projection(query, key, value, read.unflatten(0, (self._facts.heads, -1)), scale)

    def tokens_of(self, text: str) -> Int[Tensor, "n"]:
        """A text in tokens."""
        if self.tokenizer is None:
            return super().tokens_of(text)
        return torch.from_numpy(self.tokenizer.bare(text).astype("int64"))

    def _longest(self, schemes: list[Scheme]) -> int | None:
        if self.body.grid is not None:
            return self.body.prefix + math.prod(self.body.grid)
        return min((scheme.max_length for scheme in schemes if scheme.max_length is not None), default=None)

    def _mask(self) -> int | None:
        """The token of an encoder that its tokenizer does not have stands for hidden ones."""
        table, tokenizer = self.body.tokens, self.tokenizer
        if tokenizer is None or table is None or self.body.kind != "encoder":
            return None
        beyond = tokenizer.mask is None and tokenizer.size < table.num_embeddings
        return table.num_embeddings - 1 if beyond else tokenizer.mask

    def _prove(self) -> list[bool]:
        """Which layers attend by the formula; raise unless a watched pass gives what the model gives."""
        inputs, seen = self.body.example(self.model), Seen()
        self.attending = [True] * len(self.blocks)
        plain, watched_ = self.read(inputs), self.read(inputs, seen)
        error = float((plain.stream - watched_.stream).abs().max() / plain.stream.abs().max())
        if not error <= 256 * torch.finfo(self._facts.dtype).eps:
            raise Unfit(f"the plain formula of attention gives another result than the model: it is {error:.1e} off")
        return [layer in seen.layers for layer in range(len(self.blocks))]

    def _check(self, inputs: Inputs, watch: Watch) -> None:
        if (inputs.images is None) != (self.body.tokens is not None):
            raise Unfit(f"{self._facts.name} reads {'images' if self.body.tokens is None else 'texts'}")
        if watch.hooks & ATTENTION or inputs.visible is not None:
            self._need_attention(range(len(self.blocks)))
        if "stream" in watch.hooks and self.stack.shape.blocks == "reversible":
            raise Unfit("reversible layers pass two streams on")

    def _need_attention(self, layers: Any) -> None:
        others = [type(self.blocks[layer].mixer).__name__ for layer in layers if not self.attending[layer]]
        if others:
            raise Unfit(f"there is no attention to look at in layers of {', '.join(sorted(set(others)))}")

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        """What enters: other vectors, other positions."""
        if inputs.vectors is not None:
            vectors = inputs.vectors[..., : self.body.columns] / self.body.scale
            yield changed(cast(nn.Module, self.body.tokens), lambda _: vectors)
        if inputs.positions is not None:
            yield replaced(self.stack, "place", partial(_moved, self.stack.place, inputs.positions))

    def _pass(self, watch: Watch, last: list[Tokens]) -> Iterator[Change]:
        """What is passed on from layer to layer, and what is added to it."""
        for layer, block in enumerate(self.blocks):
            if "stream" in watch.hooks:
                yield hooked(block, partial(_first, partial(watch.stream, layer)))
            if "branch" in watch.hooks:
                yield changed(block.mixer_scale, partial(watch.branch, layer))
        yield hooked(self.stack.norm, partial(_first, leaving(watch, self._facts.layers, last)))

    def _attend(self, inputs: Inputs, watch: Watch) -> Iterator[Change]:
        """Attention by the plain formula, watched."""
        formula = bool(watch.hooks & ATTENTION - {"raw"}) or inputs.visible is not None
        for layer, (block, scheme) in enumerate(zip(self.blocks, self.schemes, strict=True)):
            if formula and isinstance(block.mixer, Projections):
                yield replaced(block.mixer, "compute", Plainly(block.mixer, layer, watch, inputs.visible))
            if "raw" in watch.hooks and {"encode_query", "encode_key"} & set(scheme.hooks):
                yield hooked(block.mixer, partial(_marking, partial(watch.raw, layer)))


def _projected(mixer: Projections, x: Tokens) -> tuple[Queries, Keys, Values]:
    """The queries, keys and values that a mixer makes of tokens, neither normed nor marked."""
    found: list[tuple[Queries, Keys, Values]] = []

    def keep(q: Queries, k: Keys, v: Values, *_: object, **__: object) -> Outputs:
        found.append((q, k, v))
        return q.new_zeros(*q.shape[:3], v.shape[3])

    with replaced(mixer, "compute", keep), ExitStack() as norms:
        for norm in (mixer.q_norm, mixer.k_norm):
            norms.enter_context(replaced(norm, "forward", lambda x: x))
        mixer(x, Scheme().at(Geometry.full(x.shape[1], device=x.device)), None)
    return found[0]


class _Marking(Placed):
    """A scheme at a geometry, whose queries and keys are looked at before they are marked."""

    def __init__(self, at: Placed, look: Callable[[Queries, Keys], tuple[Queries, Keys] | None]) -> None:
        super().__init__(at.scheme, at.where)
        self._made, self._look = at._made, look

    def encode(self, q: Queries, k: Keys) -> tuple[Queries, Keys]:
        return super().encode(*(self._look(q, k) or (q, k)))


def _marking(look: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, at, *rest = given
    return x, _Marking(at, look), *rest


def _first(look: Callable[[Tokens], Tokens | None], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    new = look(given[0])
    return None if new is None else (new, *given[1:])


def _moved(place: Callable[[Geometry], list[Placed]], positions: Int[Tensor, "b n"], seen: Geometry) -> list[Placed]:
    """Each scheme where the tokens are said to stand: at the places of others, or at numbers beyond."""
    index = positions.to(seen.q_pos.device)
    moved = index[..., None]
    if not seen.ordered:
        rows = torch.arange(len(index), device=index.device)[:, None]
        moved = seen.q_pos.expand(len(index), -1, -1)[rows, index]
    return place(Geometry.given(moved, causal=seen.hides_future))
