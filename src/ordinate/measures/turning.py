"""By what queries and keys are turned: how one meets another that stands so many places, or rows and columns, off."""

from collections.abc import Sequence
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.presenting import Sample
from ordinate.ops.heads import for_heads
from ordinate.shapes import Keys, Queries, Values
from ordinate.subject import Inputs, Subject, Unfit, Watch

Offset = tuple[int, ...]
"""How many places before a query a key stands, along each axis: (places,) in a text, (rows, columns) in an image."""
Turn = Float[Tensor, "#h offsets d d"]
"""R of each offset, by which q_i . k_j is q R k; one for all heads where all turn alike."""

STEPS, REACH = (0, 1, 2, 4, 8, 16), 8


def axes_of(sample: Sample) -> tuple[int, ...]:
    """How many places each axis has: tokens of a text, or rows and columns of patches."""
    return sample.grid or (sample.length,)


def offsets(axes: Sequence[int]) -> tuple[Offset, ...]:
    """At which offsets turns are looked at: back in a text, the fewer the farther; all around a patch of an image.

    Args:
        axes: how many places each axis has.
    """
    if len(axes) == 1:
        return tuple((step,) for step in STEPS if step < axes[0])
    reach = min(REACH, *(size - 1 for size in axes))
    return tuple(product(range(-reach, reach + 1), repeat=len(axes)))


def pair(axes: Sequence[int], offset: Offset) -> tuple[int, int]:
    """A query and a key that are so far apart, as near the end as can be: their places in rows one after another."""
    query = key = 0
    for size, step in zip(axes, offset, strict=True):
        query, key = query * size + size - 1 - max(0, -step), key * size + size - 1 - max(0, step)
    return query, key


class Turns(Watch):
    """Finds by what queries and keys are turned, from what becomes of unit vectors.

    Tokens in front of patches stand nowhere and are left out.

    Args:
        width: of a head: each row of the batch gets a unit vector of its own.
        axes: how many places each axis has.
        prefix: tokens in front that stand nowhere.
    """

    headless = True

    def __init__(self, width: int, axes: Sequence[int], prefix: int = 0) -> None:
        self.unit, self.prefix = torch.eye(width), prefix
        self.pairs = [pair(axes, offset) for offset in offsets(axes)]
        self.found: dict[int, Turn] = {}
        self._turned: set[int] = set()

    def raw(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys]:
        """Put unit vectors in their place."""
        if q.shape[-1] != len(self.unit):
            raise Unfit(f"before they are turned only {q.shape[-1]} of {len(self.unit)} channels of a head are seen")
        self._turned.add(layer)
        unit = self.unit.to(q)[:, None, None]
        return unit.expand_as(q).contiguous(), unit.expand_as(k).contiguous()

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Keep what became of them: how a query meets a key at each offset."""
        if layer not in self._turned:
            return
        asked, held = (_alike(x[:, :, self.prefix :].double().cpu().permute(1, 2, 0, 3)) for x in (q, k))
        held = for_heads(held, q.shape[1]) if len(held) > 1 else held
        turn = torch.stack([asked[:, query] @ held[:, key].mT for query, key in self.pairs], 1)
        # layers that turn alike share what may be large
        same = (own for own in self.found.values() if own.shape == turn.shape and torch.equal(own, turn))
        self.found[layer] = next(same, turn)


def turns(subject: Subject, sample: Sample, width: int, place: int = 0) -> dict[int, Turn]:
    """By what the queries and keys of each layer are turned at each of `offsets`; empty where nothing is.

    Args:
        subject: the model.
        sample: what it reads: the first is enough, of a text its beginning.
        width: of a head.
        place: where the text stands.

    Raises:
        Unfit: only a part of each head is seen, or the text cannot stand there.
    """
    few = sample.first(1, STEPS[-1] + 1)
    given, watch = few.given(slice(0, 1)), Turns(width, axes_of(few), few.prefix)
    ids, images = (
        None if x is None else x.expand(width, *x.shape[1:]).contiguous() for x in (given.ids, given.images)
    )
    positions = (torch.arange(few.length) + place).expand(width, -1) if place else None
    subject.read(Inputs(ids, positions, images=images), watch)
    return watch.found


def _alike(heads: Float[Tensor, "h n units d"]) -> Float[Tensor, "_ n units d"]:
    """One of all heads where all are the same."""
    return heads[:1] if torch.equal(heads, heads[:1].expand_as(heads)) else heads
