"""A model of the transformers library as a subject: what does not depend on how its attention is watched."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.anatomy.census import Sizes, example_of, grid_of, measured_part, need_plain, reads_ahead
from ordinate.anatomy.positions import Places, Way, find_rotation, find_table
from ordinate.anatomy.replaced import at_rest, changed, entering
from ordinate.anatomy.residual import find_branches, first_of, stack, with_first
from ordinate.anatomy.ways import find_ways
from ordinate.checks import need
from ordinate.shapes import Tokens
from ordinate.subject import ATTENTION, Facts, Inputs, Reading, Subject, Unfit, Watch
from ordinate.tokenizer import Tokenizer

Change = AbstractContextManager[Any]
Run = Callable[[], object]


class Published(Subject):
    """A model of the transformers library.

    Its layers, its table of positions and where it adds what attention finds are found by comparing numbers in a
    short forward pass, not by names.

    Must: `find_attention`, `attend` and `plain`.

    Args:
        model: the model.
        name: what it is called.
        tokenizer: makes tokens of a text; None: there is none.

    Raises:
        Unfit: it cannot be taken apart; the reason is in the message.
    """

    def __init__(self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None) -> None:
        need_plain(model)
        self.tokenizer, (self.model, self.kind) = tokenizer, measured_part(model)
        self.ways: list[Way] = []
        self.tokens: Any = None if self.kind == "vision" else self.model.get_input_embeddings()
        example = example_of(self.model, self.kind)
        with at_rest(self.model):
            run = partial(self._run, example)
            layers = stack(self.model, self.find_attention(run))
            if not layers:
                raise Unfit(f"{type(model).__name__} computes its attention in a way that cannot be watched")
            self.layers, self.attentions = [layer for layer, _ in layers], [attention for _, attention in layers]
            self.branches = find_branches(layers, run)
            self.sizes = self._prove(example)
            self._find_positions(run, example)
        self._facts = self._count(name, example)

    @abstractmethod
    def find_attention(self, run: Run) -> list[nn.Module]:
        """The modules that compute attention, in the order in which they run."""

    @abstractmethod
    def attend(self, inputs: Inputs, watch: Watch) -> Iterator[Change]:
        """What is changed so that attention is watched and sees what it shall see."""

    @abstractmethod
    def plain(self) -> Change:
        """The model's own attention, in plain operations."""

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        return self._facts

    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass, in evaluation mode, without gradients, watched."""
        watch = Watch() if watch is None else watch
        self._check(inputs, watch)
        return self._read(inputs, watch)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """The vectors that tokens enter by."""
        if self.tokens is None:
            raise Unfit(f"{self._facts.name} reads images")
        with at_rest(self.model):
            return self.tokens(torch.arange(self._facts.vocabulary, device=self.tokens.weight.device))

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """What is added to a token's vector at each position."""
        if self.table is None:
            return super().position_table(length)
        rows = self.table.rows
        need(length <= len(rows), f"{self._facts.name} has {len(rows)} positions", f"got {length}", "ask for fewer")
        return rows[:length]

    def tokens_of(self, text: str) -> Int[Tensor, "n"]:
        """A text in tokens, without tokens in front."""
        if self.tokenizer is None:
            return super().tokens_of(text)
        return torch.from_numpy(self.tokenizer.bare(text).astype("int64"))

    def _read(self, inputs: Inputs, watch: Watch) -> Reading:
        last: list[Tokens] = []
        with at_rest(self.model), ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self.attend(inputs, watch)]:
                changes.enter_context(change)
            out = self._run(inputs)
        logits = getattr(out, "logits", None)
        # a text has logits at each place, an image in one
        logits = logits[:, None] if logits is not None and self.kind == "vision" else logits
        return Reading(last[0], logits if logits is not None and logits.ndim == 3 else None)

    def _run(self, inputs: Inputs) -> Any:
        """A forward pass of the part that is measured."""
        if inputs.images is not None:
            return self.model(pixel_values=inputs.images)
        ids = inputs.ids
        if ids is None:
            shape = cast(Tensor, inputs.vectors).shape[:2]
            ids = torch.zeros(shape, dtype=torch.long, device=self.tokens.weight.device)
        # without a mask, positions that go back would be taken for texts packed into one row
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        usual = torch.arange(ids.shape[1], device=ids.device)[None]
        positions = usual if inputs.positions is None else inputs.positions
        for way in self.ways:
            given |= way.named(positions.expand_as(ids))
        known = inspect.signature(self.model.forward).parameters
        return self.model(**given, **({"use_cache": False} if "use_cache" in known else {}))

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        """What enters: other vectors, other positions."""
        if inputs.vectors is not None:
            yield changed(self.tokens, lambda _: inputs.vectors)
        if inputs.positions is not None:
            for way in self.ways:
                yield from way.changes(inputs.positions)

    def _pass(self, watch: Watch, last: list[Tokens]) -> Iterator[Change]:
        """What is passed on from layer to layer, and what is added to it."""
        for layer, (module, branch) in enumerate(zip(self.layers, self.branches, strict=True)):
            if "stream" in watch.hooks:
                yield entering(module, partial(watch.stream, layer))
            if "branch" in watch.hooks and branch is not None:
                yield changed(branch, partial(_leave, partial(watch.branch, layer)))

        def leave(x: Tokens) -> Tokens | None:
            new = watch.stream(len(self.layers), x)
            last.append(x if new is None else new)
            return new

        yield changed(self.layers[-1], partial(_leave, leave))

    def _check(self, inputs: Inputs, watch: Watch) -> None:
        facts = self._facts
        if (inputs.images is None) == (self.kind == "vision"):
            raise Unfit(f"{facts.name} reads {'images' if self.kind == 'vision' else 'texts'}")
        if inputs.positions is not None and not self.ways:
            raise Unfit(f"{facts.name} cannot be told other positions: they enter by {facts.position}")
        if inputs.vectors is not None and self.tokens is None:
            raise Unfit(f"{facts.name} has no table of tokens")
        if "branch" in watch.hooks and None in self.branches:
            raise Unfit(f"where {facts.name} adds what attention finds to the residual stream was not found")
        if self.windowed and (watch.hooks & ATTENTION or inputs.visible is not None):
            raise Unfit(f"{facts.name} attends within windows, not among all tokens")

    def _prove(self, example: Inputs) -> Sizes:
        """The sizes of heads and streams; raise unless a watched pass gives what the model gives."""
        sizes = Sizes()
        watched = self._read(example, sizes).stream
        with self.plain():
            plain = self._read(example, Watch()).stream
        error = float((watched - plain).abs().max() / plain.abs().max())
        if not error <= 16 * torch.finfo(plain.dtype).eps:
            raise Unfit(f"a watched pass does not give what the model gives: it is {error:.1e} off")
        if len(sizes.streams) != 1 or len(set(sizes.heads)) != 1 or len(sizes.heads) != len(self.layers):
            raise Unfit(f"its layers differ in size, or do not all attend: {sizes.streams}, {sizes.heads}")
        self.windowed = sizes.heads[0][2] != watched.shape[1]
        return sizes

    def _find_positions(self, run: Run, example: Inputs) -> None:
        """Its table of positions, and the ways to tell it others."""
        (_, length, _), *_ = self.sizes.streams
        inside = {module for layer in self.layers for module in layer.modules()}
        self.table = find_table(self.model, inside, self.tokens, run, length)
        rotation = find_rotation(self.model, inside, run, length) if self.kind == "vision" else None

        def trial(ways: list[Way], positions: Places) -> Tensor:
            self.ways = ways
            moved = Inputs(example.ids, positions.expand(2, -1) if ways else None, images=example.images)
            return self._read(moved, Watch()).stream

        self.ways = find_ways(self.model, self.table, rotation, trial, length)

    def _count(self, name: str, example: Inputs) -> Facts:
        (_, length, width), *_ = self.sizes.streams
        heads, kv_heads, _ = self.sizes.heads[0]
        kind, images = self.kind, example.images is not None
        if kind == "decoder":
            ids = cast(Tensor, example.ids)
            other = torch.cat([ids[:, :-1], ids[:, :1]], 1)
            streams = [self._read(Inputs(x), Watch()).stream for x in (ids, other)]
            kind = "encoder" if reads_ahead(*streams) else "decoder"
        grid = grid_of(self.model.config) if images else None
        first = None if self.tokenizer is None else self.tokenizer.first
        rows = 0 if self.tokens is None else self.tokens.weight.shape[0]
        if first is None and kind == "decoder":
            usual = getattr(self.model.config, "bos_token_id", None)
            first = usual if isinstance(usual, int) and usual < rows else None
        return Facts(
            name=name,
            family=self.model.config.model_type,
            kind=kind,
            layers=len(self.layers),
            heads=heads,
            kv_heads=kv_heads,
            width=width,
            vocabulary=rows,
            max_length=length if images else None if self.table is None else len(self.table.rows),
            position=self._position(),
            prefix=0 if grid is None else length - grid[0] * grid[1],
            grid=grid,
            first_token=first,
            dtype=next(self.model.parameters()).dtype,
        )

    def _position(self) -> str:
        """How position enters, as far as it was seen."""
        found = [way.kind for way in self.ways]
        found += ["rope"] if self.sizes.rotated else []
        found += ["relative"] if any("relative_position" in name for name, _ in self.model.named_parameters()) else []
        return "+".join(dict.fromkeys(found)) or "none"


def _leave(look: Callable[[Tokens], Tokens | None], out: Any) -> Any:
    return with_first(out, look(first_of(out)))
