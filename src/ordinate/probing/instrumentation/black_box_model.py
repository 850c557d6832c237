"""Base class of the adapters of external models: structure found by comparing activations, access through hooks."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.shapes import Tokens
from ordinate.probing._adapter import (
    ATTENTION_HOOKS,
    ForwardOutput,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    ModelKind,
    NotApplicable,
    Projection,
)
from ordinate.probing.instrumentation.early_exit import EarlyExit, last_layer_hook
from ordinate.probing.instrumentation.find_position_inputs import (
    NoPositionInput,
    find_position_inputs,
    ignores_position,
)
from ordinate.probing.instrumentation.inspect_model import ActivationShapes
from ordinate.probing.instrumentation.layer_stacks import choose_stage, describe_left_out, find_stages
from ordinate.probing.instrumentation.narrow_embeddings import find_widening, replaced_embeddings
from ordinate.probing.instrumentation.patching import evaluation_mode, patched_first_input, patched_output
from ordinate.probing.instrumentation.position_inputs import (
    PositionIndices,
    PositionInput,
    PositionTable,
    find_partial_table,
    find_position_table,
    find_rotation_table,
)
from ordinate.probing.instrumentation.residual_adds import find_attention_outputs, first_output, replace_first_output
from ordinate.probing.instrumentation.weight_extraction import LayerExtraction

Change = AbstractContextManager[Any]
Run = Callable[[], object]


class BlackBoxModel(ModelAdapter):
    """An external model as a black box.

    Layers, position embeddings and the modules that add the attention output to the residual stream are found by
    comparing activations of a short forward pass, not by names.

    Must: set `model`, `kind`, `tokens` (the token embedding) and `tokenizer`, call `inspect` and set `_facts`;
        `example`, `run` and `logits`; `find_attention`, `attention_hooks` and `plain`.
    """

    kind: ModelKind
    tokens: Any
    embedding_scale: float = 1.0
    """Factor of the token embeddings before positions are added to them."""
    widen: nn.Linear | None = None
    """Linear map of token embeddings to the width of the model, where they are narrower; None: none."""
    _facts: ModelInfo

    def inspect(self, example: Inputs, stage: int | None) -> None:
        """Find the layers, and verify that an instrumented pass reproduces the output of the model.

        Args:
            example: a short input.
            stage: stack of layers to probe, counted from 1; None: the one with the most layers.
        """
        self.position_inputs: list[PositionInput] = []
        with evaluation_mode(self.model):
            run = partial(self.run, example)
            asked = self.find_attention(run)
            found = find_stages(self.model, asked)
            if not found:
                raise NotApplicable(f"the attention of {type(self.model).__name__} cannot be instrumented")
            layers = choose_stage(found, stage)
            self.layers, self.attentions = [layer for layer, _ in layers], [attention for _, attention in layers]
            self.left_out = describe_left_out(self.model, asked, found, layers)
            across = self.kind == "cross-attention"
            self.branches = find_attention_outputs(layers, run, later=across)
            self.sizes = self._prove(example)
            if self._narrow(self.tokens):
                stream, ids = (lambda: self._read(example, Hooks()).residual), cast(Tensor, example.ids)
                self.widen = find_widening(self.model, self.tokens, ids, self.sizes.shape[2], stream)
            self._find_positions(run, example)

    @abstractmethod
    def example_input(self, rows: int, length: int) -> Inputs:
        """Return a short input."""

    @abstractmethod
    def run(self, inputs: Inputs) -> Any:
        """Run a forward pass of the probed part and return the raw output."""

    @abstractmethod
    def logits(self, out: Any) -> Float[Tensor, "b n classes"] | None:
        """Return the logits from the raw output."""

    @abstractmethod
    def find_attention(self, run: Run) -> list[nn.Module]:
        """Return the attention modules in execution order."""

    @abstractmethod
    def attention_hooks(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        """Yield context managers that install hooks on attention and set the attention mask."""

    @abstractmethod
    def unfused_attention(self) -> Change:
        """Context manager: the attention of the model in unfused operations."""

    @property
    def info(self) -> ModelInfo:
        return self._facts

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        watch = Hooks() if watch is None else watch
        self._check(inputs, watch)
        places = inputs.positions
        # some position inputs are shared by the whole batch: rows with different positions run one by one
        if (
            places is None
            or not any(way.shared_by_batch for way in self.position_inputs)
            or bool((places == places[:1]).all())
        ):
            return self._read(inputs, watch)
        found = [self._read(row, watch) for row in _rows(inputs, len(places))]
        logits = [one.logits for one in found if one.logits is not None]
        return ForwardOutput(torch.cat([one.residual for one in found]), torch.cat(logits) if logits else None)

    def predict(self, inputs: Inputs) -> Float[Tensor, "b places classes"] | None:
        with evaluation_mode(self.model):
            return self.logits(self.run(inputs))

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        if self.tokens is None:
            raise NotApplicable(f"{self._facts.name} takes images")
        with evaluation_mode(self.model):
            rows = self.tokens(torch.arange(self._facts.vocabulary, device=self.tokens.weight.device))
            return self._widened(rows) * self.embedding_scale

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        if self.table is None:
            return super().position_table(length)
        rows = self.table.rows
        need(
            length <= len(rows),
            f"{self._facts.name} has {len(rows)} positions",
            f"got {length}",
            "give a smaller length",
        )
        return self._widened(rows[:length])

    def projection(self, layer: int) -> Projection:
        example = self.example_input(1, min(64, self._facts.max_length or 64))
        modules = self.layers[layer], self.attentions[layer], self.branches[layer]
        with evaluation_mode(self.model):
            part = LayerExtraction(
                layer, *modules, partial(self.run, example), partial(self.attention_hooks, Inputs())
            )
            return part.projection(self._facts)

    def tokenize(self, text: str) -> Int[Tensor, "n"]:
        if self.tokenizer is None:
            return super().tokenize(text)
        return torch.from_numpy(self.tokenizer.encode_plain(text).astype("int64"))

    @contextmanager
    def installed(self, watch: Hooks) -> Iterator[None]:
        """Context manager: hooks of this part during passes of another part of the model."""
        self._check(self.example_input(1, 1), watch)
        with ExitStack() as changes:
            for change in [*self._pass(watch, []), *self.attention_hooks(Inputs(), watch)]:
                changes.enter_context(change)
            yield

    def _read(self, inputs: Inputs, watch: Hooks) -> ForwardOutput:
        last, logits = list[Tokens](), None
        mode = evaluation_mode(self.model, gradients=inputs.gradients)
        with suppress(EarlyExit), mode, ExitStack() as changes:
            for change in [*self._enter(inputs), *self._pass(watch, last), *self.attention_hooks(inputs, watch)]:
                changes.enter_context(change)
            logits = self.logits(self.run(inputs))
        return ForwardOutput(last[0], logits)

    def _enter(self, inputs: Inputs) -> Iterator[Change]:
        """Replace token embeddings and positions."""
        if inputs.embeddings is not None:
            vectors = inputs.embeddings / self.embedding_scale
            if self.widen is None:
                yield patched_output(self.tokens, lambda _: vectors)
            else:
                yield from replaced_embeddings(self.tokens, self.widen, vectors)
        if inputs.positions is not None:
            for way in self.position_inputs:
                yield from way.patches(inputs.positions)

    def _pass(self, watch: Hooks, last: list[Tokens]) -> Iterator[Change]:
        """Install hooks on the residual stream and on the attention output."""
        for layer, (module, branch) in enumerate(zip(self.layers, self.branches, strict=True)):
            if "residual" in watch.overridden:
                yield patched_first_input(module, partial(watch.residual, layer))
            if "attention_output" in watch.overridden and branch is not None:
                yield patched_output(branch.module, partial(branch.added, partial(watch.attention_output, layer)))
        yield patched_output(self.layers[-1], partial(_leave, last_layer_hook(watch, len(self.layers), last)))

    def _check(self, inputs: Inputs, watch: Hooks) -> None:
        facts = self._facts
        if (inputs.images is None) == (self.kind == "vision"):
            raise NotApplicable(f"{facts.name} takes {'images' if self.kind == 'vision' else 'texts'}")
        read = inputs.ids if inputs.ids is not None else inputs.embeddings
        if read is not None and facts.max_length is not None and read.shape[1] > facts.max_length:
            raise NotApplicable(
                f"{facts.name} reads {facts.max_length} tokens; got {read.shape[1]}; shorten the text"
            )
        if inputs.positions is not None and not self.position_inputs:
            raise NotApplicable(f"{facts.name} cannot be given other positions: {facts.position_phrase}")
        if inputs.embeddings is not None and self.tokens is None:
            raise NotApplicable(f"{facts.name} has no token embedding")
        if inputs.embeddings is not None and self.widen is None and self._narrow(self.tokens):
            raise NotApplicable(self._narrowness())
        if "attention_output" in watch.overridden and None in self.branches:
            raise NotApplicable(
                f"the attention output of {facts.name} that is added to the residual stream was not found"
            )
        if self.windowed and (watch.overridden & ATTENTION_HOOKS or inputs.mask is not None):
            raise NotApplicable(f"{facts.name} attends within windows, not among all tokens")

    def _prove(self, example: Inputs) -> ActivationShapes:
        """Return the shapes of activations; raise unless an instrumented pass reproduces the output of the model."""
        with self.unfused_attention():
            plain = self._last_output(example)
        sizes = ActivationShapes()
        if (
            plain.ndim != 3
            or plain.shape[0] != 2
            or (example.ids is not None and plain.shape[:2] != example.ids.shape)
        ):
            raise NotApplicable(
                f"the output of its layers must be a vector for each token of each text; it is {tuple(plain.shape)}"
            )
        self._need_same_attention(self._last_output(example), plain)
        watched = self._read(example, sizes).residual
        error = float((watched - plain).abs().max() / plain.abs().max())
        if not error <= 16 * torch.finfo(plain.dtype).eps:
            raise NotApplicable(
                f"an instrumented pass does not reproduce the output of the model: relative error {error:.1e}"
            )
        if len(sizes.heads) > len(self.layers):
            raise NotApplicable("layers that share weights cannot be distinguished: each must run once in a pass")
        if len(sizes.streams) != 1 or len(set(sizes.heads)) != 1 or len(sizes.heads) != len(self.layers):
            raise NotApplicable(
                f"its layers differ in shape, or some have no attention: {sizes.streams}, {sizes.heads}"
            )
        self.windowed = sizes.heads[0][2] != watched.shape[1]
        return sizes

    def _last_output(self, example: Inputs) -> Tokens:
        """Return the output of the last layer in a plain pass."""
        left: list[Tokens] = []
        with patched_output(self.layers[-1], lambda out: left.append(first_output(out))):
            self.run(example)
        return left[0]

    def _need_same_attention(self, own: Tokens, unfused: Tokens) -> None:
        """Raise unless attention in unfused operations, which is watched, is that of the model, up to rounding."""
        # of a few tokens rounding may choose other experts
        error = float(((own - unfused).norm(dim=-1) / own.norm(dim=-1)).float().nanmedian())
        if not error <= max(1e-3, 8 * torch.finfo(own.dtype).eps):
            raise NotApplicable(
                "attention in unfused operations, which can be watched, does not reproduce that of the model: "
                f"relative error {error:.1e}; attach what ordinate.load returns, where it reads this family"
            )

    def _find_positions(self, run: Run, example: Inputs) -> None:
        """Find the position embeddings, and the inputs by which other positions can be given."""
        length = self.sizes.shape[1]
        inside = {module for layer in self.layers for module in layer.modules()}
        self.table = find_position_table(self.model, inside, self.tokens, run, length)
        if self.table is None and self.kind == "vision":
            self.table = find_partial_table(self.model, inside, partial(self._first_stream, example))
        rotation = find_rotation_table(self.model, inside, run, length) if self.kind == "vision" else None
        if self.table is not None and example.ids is not None:
            self.embedding_scale = self._find_embedding_scale(self.table, example)

        def trial(ways: list[PositionInput], positions: PositionIndices) -> Tensor:
            self.position_inputs = ways
            moved = replace(example, positions=positions.expand(2, -1) if ways else None)
            return self._read(moved, Hooks()).residual

        self.position_inputs = find_position_inputs(self.model, self.table, rotation, trial, length)
        if not self.position_inputs and ignores_position(lambda given: self._read(given, Hooks()).residual, example):
            self.position_inputs = [NoPositionInput()]

    def _narrow(self, table: Any) -> bool:
        """Whether a table of embeddings has fewer columns than the residual stream."""
        return table is not None and table.weight.shape[-1] != self.sizes.shape[2]

    def _narrowness(self) -> str:
        return (
            f"the token embeddings of {self._facts.name} have {self.tokens.weight.shape[-1]} columns, not the "
            f"{self.sizes.shape[2]} of the model, and no linear map alone takes them there"
        )

    @torch.no_grad()
    def _widened(self, rows: Tensor) -> Tensor:
        """Take rows of a table to the width of the model."""
        if rows.shape[-1] == self.sizes.shape[2]:
            return rows
        if self.widen is None:
            raise NotApplicable(self._narrowness())
        return nn.functional.linear(rows, self.widen.weight)

    def _first_stream(self, example: Inputs) -> Tensor:
        """The input of the first layer."""
        kept: list[Tensor] = []
        with patched_first_input(self.layers[0], kept.append):
            self.run(example)
        return kept[0]

    def _find_embedding_scale(self, table: PositionTable, example: Inputs) -> float:
        """1, or the square root of the width (Marian): tokens and positions displaced against each other cancel."""
        rows = table.rows
        if not isinstance(table.owner, nn.Embedding) or self.tokens.weight.shape[-1] != rows.shape[-1]:
            return 1.0
        step = rows.std() * torch.randn(rows.shape[-1], generator=torch.Generator().manual_seed(0)).to(rows)
        plain = self._read(example, Hooks()).residual

        def error(scale: float) -> float:
            with (
                patched_output(self.tokens, lambda out: out + step / scale),
                patched_output(table.owner, lambda out: out - step),
            ):
                return float((self._read(example, Hooks()).residual - plain).abs().max())

        return min((1.0, rows.shape[-1] ** 0.5), key=error)

    def is_bidirectional(self, example: Inputs) -> bool:
        """Whether attention is not causal: change the last token and compare the activations of earlier ones."""
        ids = cast(Tensor, example.ids)
        other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % self.tokens.weight.shape[0]], 1)
        whole, changed_ = (self._read(replace(example, ids=x), Hooks()).residual[:, :-1] for x in (ids, other))
        return not torch.equal(whole, changed_)

    def position(self) -> str:
        """How position enters, as far as it was found."""
        found = [way.kind for way in self.position_inputs]
        found += ["rope"] if self.sizes.rotated else []
        found += ["relative"] if any("relative_position" in name for name, _ in self.model.named_parameters()) else []
        return "+".join(dict.fromkeys(found)) or "none"


def _rows(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """Split a batch into rows; inputs shared by the batch are kept."""
    for row in range(count):
        own: dict[str, Any] = {
            name: x[row : row + 1] if isinstance(x, Tensor) and len(x) == count else x
            for name, x in vars(inputs).items()
        }
        yield replace(inputs, **own)


def _leave(look: Callable[[Tokens], Tokens | None], out: Any) -> Any:
    return replace_first_output(out, look(first_output(out)))
