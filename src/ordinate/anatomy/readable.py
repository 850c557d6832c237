"""A model that was not built by us as a subject: found by its numbers, read through hooks."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.anatomy.census import Sizes
from ordinate.anatomy.extract import Part
from ordinate.anatomy.leaving import Enough, leaving
from ordinate.anatomy.positions import Places, Way, find_rotation, find_table
from ordinate.anatomy.replaced import at_rest, changed, entering
from ordinate.anatomy.residual import find_branches, first_of, with_first
from ordinate.anatomy.stages import chosen, left_out, stages
from ordinate.anatomy.ways import Nowhere, blind, find_ways
from ordinate.checks import need
from ordinate.shapes import Tokens
from ordinate.subject import ATTENTION, Facts, Inputs, Kind, Projection, Reading, Subject, Unfit, Watch
from ordinate.tokenizer import Tokenizer

Change = AbstractContextManager[Any]
Run = Callable[[], object]


class Readable(Subject):
    """A model that was not built by us.

    Its layers, its table of positions and where it adds what attention finds are found by comparing numbers in a
    short forward pass, not by names.

    Must: set `model`, `kind`, `tokens` (the table of tokens) and `tokenizer`, call `examine` and set `_facts`;
        `example`, `run` and `logits`; `find_attention`, `attend` and `plain`.
    """

    model: Any
    kind: Kind
    tokens: Any
    tokenizer: Tokenizer | None
    _facts: Facts

    def examine(self, example: Inputs, stage: int | None) -> None:
        """Find the layers, and prove that a watched pass gives what the model gives.

        Args:
            example: something short to read.
            stage: which stack of layers, counted from 1; None: the one of the most layers.
        """
        self.ways: list[Way] = []
        with at_rest(self.model):
            run = partial(self.run, example)
            asked = self.find_attention(run)
            found = stages(self.model, asked)
            if not found:
                raise Unfit(f"{type(self.model).__name__} computes its attention in a way that cannot be watched")
            layers = chosen(found, stage)
            self.layers, self.attentions = [layer for layer, _ in layers], [attention for _, attention in layers]
            self.left_out = left_out(self.model, asked, found, layers)
            self.branches = find_branches(layers, run)
            self.sizes = self._prove(example)
            self._find_positions(run, example)

    @abstractmethod
    def example(self, rows: int, length: int) -> Inputs:
        """Something short to read."""

    @abstractmethod
    def run(self, inputs: Inputs) -> Any:
        """A forward pass of the part that is measured: whatever the model gives."""

    @abstractmethod
    def logits(self, out: Any) -> Float[Tensor, "b n classes"] | None:
        """The logits in what the model gave."""

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
        places = inputs.positions
        if places is None or not any(way.alike for way in self.ways) or bool((places == places[:1]).all()):
            return self._read(inputs, watch)
        found = [self._read(row, watch) for row in _rows(inputs, len(places))]
        logits = [one.logits for one in found if one.logits is not None]
        return Reading(torch.cat([one.stream for one in found]), torch.cat(logits) if logits else None)

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

    def projection(self, layer: int) -> Projection:
        """The matrices of a layer's queries, keys and values, before any norm of queries and keys."""
        example = self.example(1, min(64, self._facts.max_length or 64))
        modules = self.layers[layer], self.attentions[layer], self.branches[layer]
        with at_rest(self.model):
            part = Part(layer, *modules, partial(self.run, example), partial(self.attend, Inputs()))
            return part.projection(self._facts)

    def tokens_of(self, text: str) -> Int[Tensor, "n"]:
        """A text in tokens, without tokens in front."""
        if self.tokenizer is None:
            return super().tokens_of(text)
        return torch.from_numpy(self.tokenizer.bare(text).astype("int64"))

    def _read(self, inputs: Inputs, watch: Watch) -> Reading:
        last, logits = list[Tokens](), None
        with suppress(Enough), at_rest(self.model), ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self.attend(inputs, watch)]:
                changes.enter_context(change)
            logits = self.logits(self.run(inputs))
        return Reading(last[0], logits)

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
        yield changed(self.layers[-1], partial(_leave, leaving(watch, len(self.layers), last)))

    def _check(self, inputs: Inputs, watch: Watch) -> None:
        facts = self._facts
        if (inputs.images is None) == (self.kind == "vision"):
            raise Unfit(f"{facts.name} reads {'images' if self.kind == 'vision' else 'texts'}")
        if inputs.positions is not None and not self.ways:
            raise Unfit(f"{facts.name} cannot be told other positions: {facts.entering}")
        if inputs.vectors is not None and self.tokens is None:
            raise Unfit(f"{facts.name} has no table of tokens")
        if "branch" in watch.hooks and None in self.branches:
            raise Unfit(f"where {facts.name} adds what attention finds to the residual stream was not found")
        if self.windowed and (watch.hooks & ATTENTION or inputs.visible is not None):
            raise Unfit(f"{facts.name} attends within windows, not among all tokens")

    def _prove(self, example: Inputs) -> Sizes:
        """The sizes of heads and streams; raise unless a watched pass gives what the model gives."""
        left: list[Tokens] = []
        with self.plain(), changed(self.layers[-1], lambda out: left.append(first_of(out))):
            self.run(example)
        plain, sizes = left[0], Sizes()
        if (
            plain.ndim != 3
            or plain.shape[0] != 2
            or (example.ids is not None and plain.shape[:2] != example.ids.shape)
        ):
            raise Unfit(f"its layers do not pass on a vector for each token of each text, but {tuple(plain.shape)}")
        watched = self._read(example, sizes).stream
        error = float((watched - plain).abs().max() / plain.abs().max())
        if not error <= 16 * torch.finfo(plain.dtype).eps:
            raise Unfit(f"a watched pass does not give what the model gives: it is {error:.1e} off")
        if len(sizes.streams) != 1 or len(set(sizes.heads)) != 1 or len(sizes.heads) != len(self.layers):
            raise Unfit(f"its layers differ in size, or do not all attend: {sizes.streams}, {sizes.heads}")
        self.windowed = sizes.heads[0][2] != watched.shape[1]
        return sizes

    def _find_positions(self, run: Run, example: Inputs) -> None:
        """Its table of positions, and the ways to tell it others."""
        length = self.sizes.shape[1]
        inside = {module for layer in self.layers for module in layer.modules()}
        self.table = find_table(self.model, inside, self.tokens, run, length)
        rotation = find_rotation(self.model, inside, run, length) if self.kind == "vision" else None

        def trial(ways: list[Way], positions: Places) -> Tensor:
            self.ways = ways
            moved = Inputs(example.ids, positions.expand(2, -1) if ways else None, images=example.images)
            return self._read(moved, Watch()).stream

        self.ways = find_ways(self.model, self.table, rotation, trial, length)
        if not self.ways and blind(lambda given: self._read(given, Watch()).stream, example):
            self.ways = [Nowhere()]

    def reads_ahead(self, example: Inputs) -> bool:
        """Whether tokens know of those after them: the last one is changed, and those before it looked at."""
        ids = cast(Tensor, example.ids)
        other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % self.tokens.weight.shape[0]], 1)
        whole, changed_ = (self._read(Inputs(x), Watch()).stream[:, :-1] for x in (ids, other))
        return not torch.equal(whole, changed_)

    def position(self) -> str:
        """How position enters, as far as it was seen."""
        found = [way.kind for way in self.ways]
        found += ["rope"] if self.sizes.rotated else []
        found += ["relative"] if any("relative_position" in name for name, _ in self.model.named_parameters()) else []
        return "+".join(dict.fromkeys(found)) or "none"


def _rows(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """Each text by itself; what all have in common is seen by each."""
    for row in range(count):
        own = {name: x[row : row + 1] if x is not None and len(x) == count else x for name, x in vars(inputs).items()}
        yield Inputs(**own)


def _leave(look: Callable[[Tokens], Tokens | None], out: Any) -> Any:
    return with_first(out, look(first_of(out)))
