"""Our own models."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.anatomy.formula import Plainly, Seen
from ordinate.anatomy.matrices import gain, matrices
from ordinate.anatomy.replaced import at_rest, changed, hooked, replaced
from ordinate.geometry import Geometry
from ordinate.models.block import Block
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.projections import Projections
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.subject import ATTENTION, Facts, Inputs, Projection, Reading, Subject, Unfit, Watch
from ordinate.tokenizer import Tokenizer

Change = AbstractContextManager[Any]


class Own(Subject):
    """A Decoder or an Encoder of ours, read through its own parts.

    What is not watched is computed as always. Where attention is watched, or who sees whom is given, the plain
    formula stands in the place of `attend`; both are compared when the subject is made.

    Args:
        model: the model.
        name: what it is called.
        tokenizer: makes tokens of a text; None: there is none.

    Raises:
        Unfit: the plain formula does not give what the model gives.
    """

    order = 0

    def __init__(self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None) -> None:
        self.model, self.tokenizer = cast(Decoder | Encoder, model), tokenizer
        self.blocks = [cast(Block, block) for block in self.model.blocks]
        schemes = [cast(Scheme, scheme) for scheme in self.model.schemes]
        self.schemes = [schemes[place] for place in self.model.scheme_of_layer]
        shape = self.model.shape
        self._facts = Facts(
            name=name,
            family="ours",
            kind="decoder" if isinstance(model, Decoder) else "encoder",
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.heads if shape.kv_heads is None else shape.kv_heads,
            width=shape.width,
            vocabulary=shape.vocabulary,
            max_length=min((scheme.max_length for scheme in schemes if scheme.max_length is not None), default=None),
            position=shape.scheme.partition(":")[0],
            first_token=None if tokenizer is None else tokenizer.first,
            dtype=self.model.tokens.weight.dtype,
        )
        self.attending = self._prove()

    @classmethod
    def refuses(cls, model: object) -> str | None:
        """Why it is no model of ours."""
        return None if isinstance(model, Decoder | Encoder) else "it is none of our models"

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        return self._facts

    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass, in evaluation mode, without gradients, watched."""
        watch = Watch() if watch is None else watch
        self._check(inputs, watch)
        ids, last = inputs.ids, []
        if ids is None:
            shape = cast(Tensor, inputs.vectors).shape[:2]
            ids = torch.zeros(shape, dtype=torch.long, device=self.model.tokens.weight.device)
        with at_rest(self.model), ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self._attend(inputs, watch)]:
                changes.enter_context(change)
            out = self.model(ids)
            if isinstance(self.model, Encoder):
                out = None if self.model.masked is None else self.model.predict(out)
        return Reading(last[0], out)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """The vectors that tokens enter by; 0 in columns that a scheme appends."""
        table = self.model.tokens.weight.detach()
        return nn.functional.pad(table, (0, self._facts.width - table.shape[1]))

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """What the first scheme adds to a token of each position, or appends."""
        if "embed" not in self.schemes[0].hooks:
            return super().position_table(length)
        with at_rest(self.model):
            nothing = self.model.tokens.weight.new_zeros(1, length, self.model.tokens.embedding_dim)
            return self.schemes[0].at(Geometry.causal(length, device=nothing.device)).embed(nothing)[0]

    def projection(self, layer: int) -> Projection:
        """The matrices of a layer's queries, keys and values, before any norm of queries and keys."""
        self._need_attention([layer])
        block = self.blocks[layer]
        mixer = cast(Projections, block.mixer)
        like = mixer.project.weight.detach().new_zeros(self._facts.width)
        norm = None if self.model.shape.order == "post" else block.mixer_norm
        with at_rest(self.model):
            found, scale = matrices(partial(_projected, mixer), like), gain(norm, like)
            size = mixer.head_width * self._facts.heads
            unit = torch.eye(size, dtype=like.dtype, device=like.device).unflatten(1, (self._facts.heads, -1))
            outputs = unit.transpose(0, 1)[None]
            read = (mixer.gather(outputs) - mixer.gather(torch.zeros_like(outputs)))[0]
        if found is None or scale is None:
            raise Unfit(f"layer {layer} makes its queries and keys by no matrix")
        query, key, value = found
        return Projection(query, key, value, read.unflatten(0, (self._facts.heads, -1)), scale)

    def tokens_of(self, text: str) -> Int[Tensor, "n"]:
        """A text in tokens."""
        if self.tokenizer is None:
            return super().tokens_of(text)
        return torch.from_numpy(self.tokenizer.bare(text).astype("int64"))

    def _prove(self) -> list[bool]:
        """Which layers attend by the formula; raise unless a watched pass gives what the model gives."""
        ids = torch.arange(8, device=self.model.tokens.weight.device)[None] % self._facts.vocabulary
        inputs, seen = Inputs(ids), Seen()
        self.attending = [True] * len(self.blocks)
        plain, watched_ = self.read(inputs), self.read(inputs, seen)
        error = float((plain.stream - watched_.stream).abs().max() / plain.stream.abs().max())
        if not error <= 256 * torch.finfo(self._facts.dtype).eps:
            raise Unfit(f"the plain formula of attention gives another result than the model: it is {error:.1e} off")
        return [layer in seen.layers for layer in range(len(self.blocks))]

    def _check(self, inputs: Inputs, watch: Watch) -> None:
        if inputs.images is not None:
            raise Unfit(f"{self._facts.name} reads texts, not images")
        if watch.hooks & ATTENTION or inputs.visible is not None:
            self._need_attention(range(len(self.blocks)))
        if "stream" in watch.hooks and self.model.shape.blocks == "reversible":
            raise Unfit("reversible layers pass two streams on")

    def _need_attention(self, layers: Any) -> None:
        others = [type(self.blocks[layer].mixer).__name__ for layer in layers if not self.attending[layer]]
        if others:
            raise Unfit(f"there is no attention to look at in layers of {', '.join(sorted(set(others)))}")

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        """What enters: other vectors, other positions."""
        if inputs.vectors is not None:
            columns = self.model.tokens.embedding_dim
            yield changed(self.model.tokens, lambda _: cast(Tensor, inputs.vectors)[..., :columns])
        if inputs.positions is not None:
            positions = inputs.positions[..., None]
            place = self.model.place

            def moved(seen: Geometry) -> list[Placed]:
                return place(Geometry.given(positions.to(seen.q_pos.device), causal=seen.hides_future))

            yield replaced(self.model, "place", moved)

    def _pass(self, watch: Watch, last: list[Tokens]) -> Iterator[Change]:
        """What is passed on from layer to layer, and what is added to it."""
        for layer, block in enumerate(self.blocks):
            if "stream" in watch.hooks:
                yield hooked(block, partial(_first, partial(watch.stream, layer)))
            if "branch" in watch.hooks:
                yield changed(block.mixer, partial(_pair, partial(watch.branch, layer)))

        def leave(x: Tokens) -> Tokens | None:
            new = watch.stream(self._facts.layers, x)
            last.append(x if new is None else new)
            return new

        yield hooked(self.model.norm, partial(_first, leave))

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


def _pair(look: Callable[[Tokens], Tokens | None], out: tuple[Tokens, Any]) -> tuple[Tokens, Any] | None:
    new = look(out[0])
    return None if new is None else (new, out[1])
