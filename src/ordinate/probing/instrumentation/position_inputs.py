"""Position inputs of external models: position ids, position embeddings, and rotation tables of images."""

import inspect
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.probing.instrumentation.patching import patched_output

PositionIndices = Int[Tensor, "b n"]
Patch = AbstractContextManager[Any]


class PositionInput(ABC):
    """A way to give a model other positions, counted from 0 in the order of the model.

    Must: `kind`; one of `arguments` and `patches`.
    """

    kind: str
    """How position enters: learned, rope, alibi, ..."""
    shared_by_batch: ClassVar[bool] = False
    """Whether all rows of a batch must have the same positions."""

    def arguments(self, positions: PositionIndices) -> dict[str, Tensor]:
        """Keyword arguments for the forward pass."""
        return {}

    def patches(self, positions: PositionIndices) -> list[Patch]:
        """Context managers that change the model during a forward pass."""
        return []


@dataclass
class PositionIds(PositionInput):
    """The model takes `position_ids`.

    Args:
        offset: the id of the first position: 2 in RoBERTa.
        kind: how position enters.
    """

    offset: int
    kind: str

    def arguments(self, positions: PositionIndices) -> dict[str, Tensor]:
        return {"position_ids": positions + self.offset}


@dataclass(eq=False)
class PositionTable(PositionInput):
    """A table of position embeddings.

    Args:
        owner: the module that has the table: an embedding, or a module with a parameter.
        name: name of the parameter.
        offset: row of the first position: 2 in OPT.
        kind: learned or sinusoidal.
        row_of: row of each token, -1 where it has none, as the registers of an image; None: one for each in order.
    """

    owner: nn.Module
    name: str
    offset: int
    kind: str = "learned"
    row_of: Int[Tensor, "n"] | None = None

    @property
    def rows(self) -> Float[Tensor, "length width"]:
        """The embeddings, starting with position 0."""
        return getattr(self.owner, self.name).detach().flatten(0, -2)[self.offset :]

    def patches(self, positions: PositionIndices) -> list[Patch]:
        if isinstance(self.owner, nn.Embedding):
            return [patched_output(self.owner, lambda _: self.rows[positions])]
        if self.row_of is not None:
            held = (self.row_of >= 0).nonzero()[:, 0]
            positions = self.row_of[positions[:, held[self.row_of[held].argsort()]]]
        return [_parameter(self.owner, self.name, nn.Parameter(self.rows[positions], requires_grad=False))]


@dataclass(eq=False)
class RotationTable(PositionInput):
    """A module that returns the RoPE cosines and sines of all patches.

    Args:
        owner: the module.
        prefix: number of leading tokens without rotation.
    """

    owner: nn.Module
    prefix: int
    kind: str = "rope"
    shared_by_batch: ClassVar[bool] = True

    def patches(self, positions: PositionIndices) -> list[Patch]:
        row = shared_positions(positions)
        need(
            bool((row[: self.prefix] == torch.arange(self.prefix, device=row.device)).all()),
            f"the first {self.prefix} tokens have no position",
            "got other positions for them",
            f"start positions with 0 to {self.prefix - 1}",
        )
        index = row[self.prefix :] - self.prefix
        return [patched_output(self.owner, lambda out: tuple(part.index_select(-2, index) for part in out))]


def find_position_table(
    part: nn.Module, inside: set[nn.Module], tokens: nn.Module | None, run: Callable[[], object], length: int
) -> PositionTable | None:
    """Find the position embeddings: an embedding that returns consecutive rows, or a parameter with a row a token.

    Args:
        part: the model.
        inside: modules of the layers, which are not searched.
        tokens: the token embedding.
        run: a forward pass.
        length: its number of tokens.
    """
    given: list[tuple[nn.Embedding, Tensor]] = []
    outside = [module for module in part.modules() if module not in inside]
    hooks = [
        module.register_forward_hook(lambda table, _, out: given.append((table, out)))
        for module in outside
        if isinstance(module, nn.Embedding) and module is not tokens
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    for table, out in given:
        rows = out.flatten(0, -2)[:length]
        first = int((table.weight - rows[0]).abs().sum(-1).argmin())
        if torch.equal(table.weight[first : first + length], rows):
            return _of_kind(PositionTable(table, "weight", first))
    for module in outside:
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim == 3 and parameter.shape[:2] == (1, length) and not isinstance(module, nn.Embedding):
                return _of_kind(PositionTable(module, name, 0))
    return None


def find_partial_table(part: nn.Module, inside: set[nn.Module], stream: Callable[[], Tensor]) -> PositionTable | None:
    """Find position embeddings that registers of an image lack: a parameter with a row for each other token.

    Each row is displaced by an amount of its own, which its token shows.

    Args:
        part: the model.
        inside: modules of the layers, which are not searched.
        stream: runs the model and returns the input of its first layer.
    """
    plain = stream()
    length, width = plain.shape[1:]
    outside = (module for module in part.modules() if module not in inside and not isinstance(module, nn.Embedding))
    held = [(module, *named) for module in outside for named in module.named_parameters(recurse=False)]
    # most tokens are patches
    shaped = [one for one in held if one[2].ndim == 3 and length // 2 < one[2].shape[1] < length]
    for owner, name, parameter in (one for one in shaped if one[2].shape[::2] == (1, width)):
        count = parameter.shape[1]
        steps = torch.arange(1, count + 1, device=parameter.device).to(parameter)[:, None].expand(-1, width)
        with _parameter(owner, name, nn.Parameter(parameter + steps, requires_grad=False)):
            row_of = (stream() - plain)[0].mean(-1).round().long() - 1
        if torch.equal(row_of[row_of >= 0].sort().values, torch.arange(count, device=row_of.device)):
            return _of_kind(PositionTable(owner, name, 0, row_of=row_of))
    return None


def find_rotation_table(
    part: nn.Module, inside: set[nn.Module], run: Callable[[], object], length: int
) -> RotationTable | None:
    """Find the module that returns the RoPE cosines and sines of all patches: a pair with cos^2 + sin^2 = 1."""
    given: list[tuple[nn.Module, Any]] = []
    hooks = [
        module.register_forward_hook(lambda module, _, out: given.append((module, out)))
        for module in part.modules()
        if module not in inside
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    for module, out in given:
        if isinstance(out, tuple) and len(out) == 2 and all(isinstance(x, Tensor) for x in out):
            cos, sin = out
            if cos.shape == sin.shape and torch.allclose(cos**2 + sin**2, torch.ones_like(cos), atol=1e-2):
                return RotationTable(module, length - cos.shape[-2])
    return None


def shared_positions(positions: PositionIndices) -> Int[Tensor, "n"]:
    """Return the positions that all rows of a batch share.

    Raises:
        ValueError: the rows have different positions.
    """
    need(
        bool((positions == positions[:1]).all()),
        "this model needs the same positions in all rows of a batch",
        "got different ones",
        "run the rows one by one",
    )
    return positions[0]


def takes_position_ids(part: nn.Module) -> bool:
    """Whether the forward method of a model takes `position_ids`."""
    return "position_ids" in inspect.signature(part.forward).parameters


def _of_kind(table: PositionTable) -> PositionTable:
    """Mark a table as sinusoidal if the product of neighbouring rows is the same everywhere."""
    rows = table.rows.double()
    products = (rows[1:] * rows[:-1]).sum(-1)
    alike = len(products) > 2 and bool((products - products.mean()).abs().max() < 1e-3 * products.mean().abs())
    table.kind = "sinusoidal" if alike else "learned"
    return table


@contextmanager
def _parameter(owner: nn.Module, name: str, value: nn.Parameter) -> Iterator[None]:
    before = owner._parameters[name]
    owner._parameters[name] = value
    try:
        yield
    finally:
        owner._parameters[name] = before
