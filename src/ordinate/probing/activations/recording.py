"""Record activations of forward passes by name and layer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ordinate.core.checks import need, shown
from ordinate.core.finding import Table
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.change import Marked, combined
from ordinate.probing.activations.inputs import ModelInput, batches
from ordinate.probing.activations.names import (
    ACTIVATIONS,
    ROTATED,
    HookFunctions,
    check_indices,
    check_names,
    lacking_activation,
    missing_activation,
)

# rows of a table: about what a spreadsheet opens
MOST_ROWS = 1_000_000

Reduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Recording(Mapping[tuple[str, int], Tensor]):
    """Activations by name and layer: `recording["pattern", 3]`.

    Args:
        activations: each tensor by its name and layer, the batch first.
        logits: the logits, if they were asked for and the model has a head.
        reduced: whether the tensors are what a function made of the activations.
    """

    activations: Mapping[tuple[str, int], Tensor]
    logits: Tensor | None = None
    reduced: bool = False

    def __getitem__(self, key: tuple[str, int]) -> Tensor:
        """Return one activation.

        Raises:
            KeyError: it was not recorded.
        """
        if key not in self.activations:
            raise KeyError(f"{shown(key)} was not recorded; there are: {', '.join(map(str, self.activations))}")
        return self.activations[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.activations)

    def __len__(self) -> int:
        return len(self.activations)

    def layers(self, name: str) -> Tensor:
        """Return an activation of all recorded layers, stacked: (batch, layers, ...)."""
        own = [x for (one, _), x in self.activations.items() if one == name]
        known = sorted({one for one, _ in self.activations})
        need(bool(own), f"{shown(name)} must be recorded", f"there are {', '.join(known)}", "record it")
        return torch.stack(own, 1)

    def table(self) -> Table:
        """Return a table with a row for each number: name, layer, the index on each axis, value.

        Raises:
            ValueError: more than a million numbers.
        """
        size = sum(x.numel() for x in self.activations.values())
        need(size <= MOST_ROWS, f"a table has up to {MOST_ROWS:,} rows", f"got {size:,} numbers", "reduce them")
        deepest = max((x.ndim for x in self.activations.values()), default=1)
        kinds = {ACTIVATIONS[name].axes for name, _ in self.activations}
        axes = [f"axis {index}" for index in range(deepest)]
        if len(kinds) == 1 and not self.reduced:
            axes = list(kinds.pop())
        rows = [row for key, x in self.activations.items() for row in _rows(key, x, deepest)]
        return Table(title="Activations", columns=("name", "layer", *axes, "value"), rows=tuple(rows))


def record(
    model: object,
    inputs: ModelInput | Iterable[ModelInput],
    names: str | Sequence[str],
    *,
    layers: int | Sequence[int] | None = None,
    reduce: Reduce | None = None,
    logits: bool = False,
    gradients: bool = False,
) -> Recording:
    """Record activations by the names of TransformerLens.

    Heads are (batch, heads, tokens, head width), as in PyTorch; TransformerLens has (batch, tokens, heads, width).

    Args:
        model: a model, its folder, or an adapter made by `attach`, which saves attaching again.
        inputs: one batch, or several whose activations are concatenated: a text, token ids (batch, tokens), images,
            or `Inputs`.
        names: one or more of resid_pre, q, k, rot_q, rot_k, v, attn_scores, pattern, z, attn_out, resid_post.
        layers: indices from 0; None: all.
        reduce: applied to each activation as it comes, so that whole ones are never kept; the batch stays first.
        logits: whether to run the output head too.
        gradients: whether activations and logits stay in the graph: after `backward` of something computed from them,
            each recorded activation has its gradient in `.grad`, of one batch and without `reduce`.

    Raises:
        ValueError: an unknown name or layer, a `reduce` that does not keep the batch, or gradients of several
            batches or reduced activations.
        NotApplicable: the model lacks one of them; the message lists those that it has.
    """
    subject = model if isinstance(model, ModelAdapter) else attach(model)
    wanted = check_names(names)
    chosen = check_indices("layers", layers, subject.info.layers)
    keys = [(name, layer) for name in wanted for layer in chosen]
    given = batches(subject, inputs)
    try:
        if gradients:
            found = _in_graph(subject, list(given), keys, reduce, logits=logits)
        else:
            found = collect(subject, given, keys, reduce, logits=logits)
    except NotApplicable as reason:
        raise missing_activation(subject, str(reason)) from None
    for name in wanted:
        if lacking := [layer for layer in chosen if (name, layer) not in found]:
            raise lacking_activation(subject, name, lacking)
    return found


def collect(
    subject: ModelAdapter,
    inputs: Iterable[Inputs],
    keys: Sequence[tuple[str, int]],
    reduce: Reduce | None = None,
    *,
    logits: bool = False,
) -> Recording:
    """Record some activations, each of its own layers, of an attached model; what it lacks is left out.

    `record` is this with names and layers checked, and errors that list what the model has.

    Args:
        subject: the model.
        inputs: the inputs of each forward pass.
        keys: name and layer of each activation.
        reduce: applied to each activation as it comes; the batch stays first.
        logits: whether to run the output head too.

    Raises:
        ValueError: a `reduce` that does not keep the batch.
        NotApplicable: the model cannot be observed there, with its own reason.
    """
    recorder, heads = _Recorder(tuple(keys), reduce), list[Tensor]()
    watch = recorder.hooks(skip_head=not logits)
    for batch in inputs:
        recorder.rotated.clear()
        out = subject.forward(batch, watch)
        heads += [out.logits] if logits and out.logits is not None else []
    found = recorder.concatenated()
    own = {key: found[key] for key in keys if key in found}
    return Recording(own, torch.cat(heads) if heads else None, reduce is not None)


def _in_graph(
    subject: ModelAdapter,
    inputs: list[Inputs],
    keys: Sequence[tuple[str, int]],
    reduce: Reduce | None,
    *,
    logits: bool,
) -> Recording:
    need(reduce is None, "gradients are of whole activations", "got reduce", "reduce them afterwards")
    need(len(inputs) == 1, "gradients are of one batch", f"got {len(inputs)}", "record each by itself")
    names = dict.fromkeys(name for name, _ in keys)
    changes = {own: Marked.of(own, [layer for name, layer in keys if name == own]) for own in names}
    watch: Hooks = HookFunctions({}, skip_head=not logits)
    # a change of the residual stream must be marked after those before it, in any order of names
    for name in ACTIVATIONS:
        if name in changes:
            watch = combined(changes[name].hooks, watch)
    out = subject.forward(replace(inputs[0], gradients=True), watch)
    marked = {(name, layer): x for name, own in changes.items() for layer, x in own.marked.items()}
    return Recording({key: marked[key] for key in keys if key in marked}, out.logits if logits else None)


@dataclass(eq=False)
class _Recorder:
    """What hooks keep of some activations.

    Args:
        keys: name and layer of each.
        reduce: applied to each activation; None: a copy is kept.
        rotated: queries and keys before RoPE of each layer of the current pass.
        kept: for each batch what was kept, by name and layer.
    """

    keys: tuple[tuple[str, int], ...]
    reduce: Reduce | None
    rotated: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    kept: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the activations."""
        return tuple(dict.fromkeys(name for name, _ in self.keys))

    def hooks(self, *, skip_head: bool) -> HookFunctions:
        """Return the hooks that are needed, and no others."""
        own: dict[str, Callable[..., None]] = {
            "residual": self._residual,
            "qk_before_rope": self._before_rope,
            "attention": self._attention,
            "attention_output": lambda layer, x: self._keep("attn_out", layer, x),
        }
        sites = {ACTIVATIONS[name].site for name in self.names}
        # whether a layer has RoPE is known once it calls the hook before it
        needed = sites | ({"qk_before_rope"} if set(self.names) & set(ROTATED) else set())
        needed |= {"attention"} if "qk_before_rope" in needed else set()
        return HookFunctions(
            {name: function for name, function in own.items() if name in needed}, skip_head=skip_head
        )

    def concatenated(self) -> dict[tuple[str, int], Tensor]:
        """Return what was kept, the batches concatenated."""
        for (name, layer), parts in self.kept.items():
            shapes = {tuple(x.shape[1:]) for x in parts}
            must = f"batches must give {name} of layer {layer} one shape"
            need(len(shapes) == 1, must, f"got {sorted(shapes)}", "give texts of one length, or reduce")
        return {key: torch.cat(parts) for key, parts in self.kept.items()}

    def _residual(self, layer: int, x: Tensor) -> None:
        self._keep("resid_pre", layer, x)
        self._keep("resid_post", layer - 1, x)

    def _before_rope(self, layer: int, q: Tensor, k: Tensor) -> None:
        self.rotated[layer] = q, k

    def _attention(self, layer: int, seen: AttentionRecord) -> None:
        before = self.rotated.get(layer)
        for name in self.names:
            read = ACTIVATIONS[name].of
            if read is None or (name in ROTATED and before is None):
                continue
            own = read(seen) if before is None or name not in ("q", "k") else before[name == "k"]
            self._keep(name, layer, own)

    def _keep(self, name: str, layer: int, x: Tensor) -> None:
        if (name, layer) not in self.keys:
            return
        out = x.detach().clone() if self.reduce is None else self.reduce(x.detach())
        came = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        must = f"reduce must keep the batch first ({len(x)} texts)"
        need(isinstance(out, Tensor) and out.shape[:1] == x.shape[:1], must, f"got {came}", "reduce over other axes")
        self.kept.setdefault((name, layer), []).append(out)


def _rows(key: tuple[str, int], x: Tensor, deepest: int) -> Iterator[tuple[Any, ...]]:
    places = torch.cartesian_prod(*(torch.arange(size) for size in x.shape)).view(-1, x.ndim).tolist()
    for place, value in zip(places, x.detach().double().flatten().tolist(), strict=True):
        yield (*key, *place, *[None] * (deepest - x.ndim), value)
