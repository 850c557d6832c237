"""The matrices by which a layer of a model that is not ours makes queries, keys and values, found by trying them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.anatomy.matrices import gain, matrices
from ordinate.anatomy.replaced import changed, entering, replaced
from ordinate.anatomy.residual import Trace, first_of
from ordinate.anatomy.rotation import ROTATE, unrotated
from ordinate.shapes import Keys, Queries, Tokens, Values, Weights
from ordinate.subject import Facts, Projection, Unfit, Watch

Call = Callable[[Tokens, Watch], object]
"""Runs a layer with these tokens entering its attention, watched."""


@dataclass(frozen=True, eq=False)
class Part:
    """A layer of a model, and how it is run.

    Args:
        number: of the layer, from 0.
        layer: the layer.
        attention: what computes attention in it.
        branch: what the result of attention leaves through before it is added; None: it is not known.
        run: a forward pass of the model, of one row.
        attend: the changes by which attention is watched.
    """

    number: int
    layer: nn.Module
    attention: nn.Module
    branch: nn.Module | None
    run: Callable[[], object]
    attend: Callable[[Watch], Iterator[Any]]

    def projection(self, facts: Facts) -> Projection:
        """The matrices of queries, keys and values, before any norm of queries and keys.

        Raises:
            Unfit: it makes them in another way.
        """
        given, named = call_of(self.layer, self.run)
        entered: list[Tokens] = []
        with entering(self.attention, entered.append):
            self.layer(*given, **named)
        # windows are all given the same tokens; only what leaves attention itself keeps their order
        x, windows = entered[0][:1], len(entered[0])
        like = x.new_zeros(facts.width)

        def call(x: Tokens, watch: Watch) -> None:
            with ExitStack() as changes:
                for change in [*self.attend(watch), entering(self.attention, x.expand_as)]:
                    changes.enter_context(change)
                self.layer(*given, **named)

        found, scale = (
            project(self.attention, call, like, x.shape[1]),
            gain_before(self.layer, self.attention, self.run, like),
        )
        if found is None or scale is None:
            raise Unfit(f"layer {self.number} of {facts.name} makes its queries and keys by no matrix")
        query, key, value = (part.to(like.dtype) for part in found)
        for site in [self.attention] if windows > 1 else dict.fromkeys([self.branch, self.attention]):
            read = None if site is None else read_out(site, call, x, facts.heads, value.shape[2])
            if read is not None and read.shape[2] == facts.width:
                return Projection(query, key, value, read, scale)
        raise Unfit(f"layer {self.number} of {facts.name} reads what its heads give by no matrix")


class Reached(Exception):  # noqa: N818 - no error: the layer whose call is wanted
    """What a layer was called with."""

    def __init__(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__()
        self.given, self.named = given, named


def call_of(layer: nn.Module, run: Callable[[], object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a layer is called with in a forward pass, which ends there."""

    def reach(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        raise Reached(given, named)

    handle = layer.register_forward_pre_hook(reach, with_kwargs=True)
    try:
        run()
    except Reached as reached:
        return reached.given, reached.named
    finally:
        handle.remove()
    raise Unfit("a layer was never called")


@contextmanager
def bare(attention: nn.Module) -> Iterator[None]:
    """Let attention neither norm nor rotate its queries and keys."""
    space = sys.modules[type(attention).__module__]
    with ExitStack() as changes:
        for module in attention.modules():
            if "Norm" in type(module).__name__:
                changes.enter_context(replaced(module, "forward", lambda x: x))
        if hasattr(space, ROTATE):
            changes.enter_context(replaced(space, ROTATE, unrotated))
        yield


def project(attention: nn.Module, call: Call, like: Float[Tensor, "width"], rows: int) -> list[Tensor] | None:
    """The matrices of queries, keys and values; None: there are none."""

    def maps(x: Tokens) -> tuple[Queries, Keys, Values]:
        kept = Kept()
        call(x, kept)
        q, k, v = (part[:1] for part in kept.marked_)
        return q, k, v

    with bare(attention):
        return matrices(maps, like, rows)


class Kept(Watch):
    """Keeps queries, keys and values."""

    marked_: tuple[Queries, Keys, Values]

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Keep them."""
        self.marked_ = q, k, v


class Alone(Watch):
    """Lets one head read the values that it is given, each token its own, and the others nothing."""

    def __init__(self, head: int, values: Float[Tensor, "n e"]) -> None:
        self.head, self.values = head, values

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Other values."""
        return q, k, self.values.to(v.dtype).expand_as(v)

    def weights(self, layer: int, weights: Weights) -> Weights:
        """Each token sees itself."""
        own = torch.zeros_like(weights)
        own[:, self.head] = torch.eye(weights.shape[2], dtype=own.dtype, device=own.device)
        return own


def read_out(site: nn.Module, call: Call, x: Tokens, heads: int, channels: int) -> Float[Tensor, "h e width"] | None:
    """The matrix by which what the heads have read becomes tokens; None: what leaves `site` is no linear map of it.

    Args:
        site: a module that what they have read leaves through.
        call: runs the layer.
        x: tokens that enter its attention.
        heads: query heads.
        channels: of a head's values.
    """
    count = x.shape[1]

    def out(head: int, values: Float[Tensor, "some e"]) -> Float[Tensor, "some width"]:
        given = values.new_zeros(count, channels)
        given[: len(values)] = values
        kept: list[Tensor] = []
        with changed(site, lambda out: kept.append(first_of(out))):
            call(x, Alone(head, given))
        return kept[0].flatten(0, -2)[: len(values)]

    unit = torch.eye(channels, dtype=x.dtype, device=x.device)
    none = out(0, unit[:1] * 0)
    made = torch.stack([torch.cat([out(head, part) - none for part in unit.split(count)]) for head in range(heads)])
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(1, channels, generator=generator).to(x)
    seen, expected = out(heads - 1, tried) - none, tried @ made[-1]
    close = (seen - expected).abs().max() <= 256 * torch.finfo(x.dtype).eps * seen.abs().max()
    return made if bool(close) else None


def gain_before(
    layer: nn.Module, attention: nn.Module, run: Callable[[], object], like: Float[Tensor, "width"]
) -> Float[Tensor, "width"] | None:
    """What the norm between a layer's input and its attention multiplies columns by; None: no norm is there."""
    trace = Trace()
    with trace.follow(layer):
        run()
    whole = next(event for event in trace.events if event.module is layer)
    look = next(event for event in trace.events if event.module is attention)
    if look.entered is None or whole.entered is None:
        return None
    if look.entered.equal(whole.entered):
        return gain(None, like)
    before = [event for event in trace.events if event.left is not None and 0 < event.ended < look.began]
    norms = [event.module for event in before if event.left is not None and _regrouped(event.left, look.entered)]
    return gain(norms[0], like) if norms else None


def _regrouped(tokens: Tensor, entered: Tensor) -> bool:
    """Whether the same tokens enter attention, in whatever order: in windows, which nothings may fill up."""
    if tokens.shape[-1] != entered.shape[-1]:
        return False
    one, other = (x[(x != 0).any(-1)].sort(0).values for x in (tokens, entered))
    return one.equal(other)
