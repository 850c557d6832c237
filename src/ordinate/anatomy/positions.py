"""Ways to tell a model that is not ours where its tokens stand."""

import inspect
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.anatomy.replaced import changed
from ordinate.checks import need

Places = Int[Tensor, "b n"]
Change = AbstractContextManager[Any]


class Way(ABC):
    """A way to tell a model where its tokens stand, counted from 0 in the model's own order.

    Must: `kind`; one of the two.
    """

    kind: str
    """How position enters, by this way."""
    alike: ClassVar[bool] = False
    """Whether all rows of a batch must be placed alike."""

    def named(self, positions: Places) -> dict[str, Tensor]:
        """What the model is given by name."""
        return {}

    def changes(self, positions: Places) -> list[Change]:
        """What is changed inside of it."""
        return []


@dataclass
class Argument(Way):
    """The model takes ids of positions.

    Args:
        offset: the id of the first position: 2 in RoBERTa.
        kind: how position enters.
    """

    offset: int
    kind: str

    def named(self, positions: Places) -> dict[str, Tensor]:
        """The ids."""
        return {"position_ids": positions + self.offset}


@dataclass(eq=False)
class Table(Way):
    """A table has a vector for each position.

    Args:
        owner: the module that has it: an embedding, or one with a parameter.
        name: of the parameter.
        offset: the row of the first position: 2 in OPT.
        kind: whether it is learned or sinusoidal.
    """

    owner: nn.Module
    name: str
    offset: int
    kind: str = "learned"

    @property
    def rows(self) -> Float[Tensor, "length width"]:
        """The vectors, from position 0 on."""
        return getattr(self.owner, self.name).detach().flatten(0, -2)[self.offset :]

    def changes(self, positions: Places) -> list[Change]:
        """Other rows."""
        if isinstance(self.owner, nn.Embedding):
            return [changed(self.owner, lambda _: self.rows[positions])]
        return [_parameter(self.owner, self.name, nn.Parameter(self.rows[positions], requires_grad=False))]


@dataclass(eq=False)
class Rotation(Way):
    """A module gives the cosines and sines by which queries and keys are turned, patch after patch.

    Args:
        owner: the module.
        prefix: tokens in front that are not turned.
    """

    owner: nn.Module
    prefix: int
    kind: str = "rope"
    alike: ClassVar[bool] = True

    def changes(self, positions: Places) -> list[Change]:
        """The cosines and sines of other patches."""
        row = one_row(positions)
        need(
            bool((row[: self.prefix] == torch.arange(self.prefix, device=row.device)).all()),
            f"the first {self.prefix} tokens stand nowhere",
            "got other positions for them",
            "leave them where they are",
        )
        index = row[self.prefix :] - self.prefix
        return [changed(self.owner, lambda out: tuple(part.index_select(-2, index) for part in out))]


def find_table(
    part: nn.Module, inside: set[nn.Module], tokens: nn.Module | None, run: Callable[[], object], length: int
) -> Table | None:
    """The table of positions: an embedding that gives its rows in order, or a parameter with a row for each token.

    Args:
        part: the model.
        inside: what belongs to layers, where no such table stands.
        tokens: the table of tokens.
        run: a forward pass.
        length: how many tokens it has.
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
            return _of_kind(Table(table, "weight", first))
    for module in outside:
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim == 3 and parameter.shape[:2] == (1, length) and not isinstance(module, nn.Embedding):
                return _of_kind(Table(module, name, 0))
    return None


def find_rotation(part: nn.Module, inside: set[nn.Module], run: Callable[[], object], length: int) -> Rotation | None:
    """The module that gives the cosines and sines of all patches."""
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
                return Rotation(module, length - cos.shape[-2])
    return None


def one_row(positions: Places) -> Int[Tensor, "n"]:
    """The positions of all rows of a batch.

    Raises:
        ValueError: they differ.
    """
    need(
        bool((positions == positions[:1]).all()),
        "this model places all rows of a batch alike",
        "got positions that differ",
        "read them one by one",
    )
    return positions[0]


def takes_ids(part: nn.Module) -> bool:
    """Whether a model takes ids of positions."""
    return "position_ids" in inspect.signature(part.forward).parameters


def _of_kind(table: Table) -> Table:
    """The table, marked as sinusoidal where neighbours are alike everywhere."""
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
