"""Schemes made of schemes: several at once, and another for each group of heads."""

from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import cast

import torch
from torch import Tensor, nn

from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.ops.relative import Vectors, added, beside
from ordinate.scheme import PLACES, Encoder, Scheme
from ordinate.shapes import (
    Bias,
    Keys,
    Marked,
    MarkedKeys,
    MarkedQueries,
    Outputs,
    Positions,
    Queries,
    Tokens,
    Weights,
)

SIZES = ("width", "heads", "head_width")


class Composition(Scheme):
    """What several schemes say together: the properties that follow from those of the parts.

    Args:
        parts: the schemes.
    """

    def __init__(self, *parts: Scheme) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.axes = tuple(axes for axes in (1, 2, 3) if all(axes in part.axes for part in parts))
        need(
            bool(self.axes),
            "composed schemes take the same number of position axes",
            f"got {', '.join(f'{type(part).__name__} for {part.axes}' for part in parts)}",
            "compose schemes of one kind of input",
        )
        self.whole = any(part.whole for part in parts)
        self.per_layer = any(part.per_layer for part in parts)
        self.shift_invariant = all(part.shift_invariant and "place" not in part.hooks for part in parts)
        self.max_length = min((part.max_length for part in parts if part.max_length is not None), default=None)
        self.claims = sum(part.claims for part in parts)
        # the sizes that the parts were made for are those of the whole
        for part in parts:
            vars(self).update({size: vars(part)[size] for size in SIZES if size in vars(part)})
        self.citation = "\n\n".join(dict.fromkeys(part.citation for part in parts))

    @property
    def members(self) -> list[Scheme]:
        """The parts, as schemes."""
        return [cast(Scheme, part) for part in self.parts]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Every hook that a part uses."""
        return tuple(hook for hook in PLACES if any(hook in part.hooks for part in self.members))

    def encode_query(self, q: Queries, pos: Positions) -> MarkedQueries:
        """Let the parts mark the queries."""
        return self.encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> MarkedKeys:
        """Let the parts mark the keys."""
        return self.encoders(pos)[1](k)

    def _vectors(self, where: Geometry) -> list[Vectors | None]:
        """What each part has, nothing where it reads no content."""
        reads = [{"content_bias", "carry"} & set(part.hooks) for part in self.members]
        pairs = zip(self.members, reads, strict=True)
        return [part.vectors(where) if content else Vectors(reach=0.0) for part, content in pairs]

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless every part can serve these positions."""
        for part in self.members:
            # a part that moves the tokens has seen where they were
            if "place" not in part.hooks:
                part.check_positions(pos)


class Sum(Composition):
    """Several schemes in every head: each marks what the one before has marked, and biases add up.

        x -> second(first(x)),   bias = first + second

    Args:
        parts: the schemes, in the order in which they mark.

    Raises:
        ValueError: parts for different numbers of axes, or two that score in place of q.k.
    """

    def __init__(self, *parts: Scheme) -> None:
        # what appends columns comes before what is added to all of them
        super().__init__(*sorted(parts, key=lambda part: part.claims == 0))
        scorers = [type(part).__name__ for part in parts if "score" in part.hooks]
        came = f"got {' and '.join(scorers)}"
        need(len(scorers) < 2, "one scheme alone can score in place of q.k", came, "leave one of them out")

    def place(self, where: Geometry) -> Geometry:
        """Let each part move the tokens."""
        for part in self.members:
            where = part.place(where)
        return where

    def embed(self, x: Tokens, pos: Positions) -> Marked:
        """Let each part mark the tokens."""
        for part in self.members:
            x = part.embed(x, pos)
        return x

    def encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Let each part mark queries and keys, one after another."""
        made = [part.encoders(pos) for part in self.members]
        return partial(_in_turn, [of_q for of_q, _ in made]), partial(_in_turn, [of_k for _, of_k in made])

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """The score of the one part that has one."""
        return _total(part.score(q, k, where) for part in self.members)

    def bias(self, where: Geometry) -> Bias | None:
        """All biases from positions."""
        return _total(part.bias(where) for part in self.members)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """All biases from content."""
        return _total(part.content_bias(q, k, where) for part in self.members)

    def carry(self, weights: Weights, where: Geometry) -> Outputs | None:
        """All that the parts carry."""
        return _total(part.carry(weights, where) for part in self.members)

    def vectors(self, where: Geometry) -> Vectors | None:
        """The sums of the parts' vectors."""
        return reduce(added, self._vectors(where))


class Heads(Composition):
    """Another scheme for each group of heads: the first part serves the first heads, and so on, as many each.

    Args:
        parts: the schemes, each made for its share of the heads.
        heads: query heads of the model.

    Raises:
        ValueError: the heads cannot be shared out, or a part marks or moves the tokens, which have no heads.
    """

    def __init__(self, *parts: Scheme, heads: int) -> None:
        super().__init__(*parts)
        came = f"got {heads} heads for {len(parts)} schemes"
        need(heads % len(parts) == 0, "schemes share the heads out evenly", came, "name as many as divide the heads")
        for part in parts:
            used = {"place", "embed"} & set(part.hooks)
            came = f"got {type(part).__name__}, which enters at {', '.join(PLACES[hook] for hook in sorted(used))}"
            need(not used, "a scheme for some of the heads enters inside attention", came, "add it with + instead")
        self.heads = heads

    def encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Let each part mark its queries and its keys."""
        made = [part.encoders(pos) for part in self.members]
        return partial(self._apart, [of_q for of_q, _ in made]), partial(self._apart, [of_k for _, of_k in made])

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """The scores of the parts that have their own, and q.k for the others."""
        if "score" not in self.hooks:
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        shares = zip(self.members, self._shares(q.to(wide)), self._shares(k.to(wide)), strict=True)
        scores = [(part.score(q, k, where), q @ k.mT) for part, q, k in shares]
        return torch.cat([product if own is None else own for own, product in scores], 1)

    def bias(self, where: Geometry) -> Bias | None:
        """Each part's bias for its heads."""
        return self._spread([part.bias(where) for part in self.members])

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Each part's bias from content for its heads."""
        shares = zip(self.members, self._shares(q), self._shares(k), strict=True)
        return self._spread([part.content_bias(q, k, where) for part, q, k in shares])

    def carry(self, weights: Weights, where: Geometry) -> Outputs | None:
        """What each part carries to its heads."""
        shares = zip(self.members, self._shares(weights), strict=True)
        return self._spread([part.carry(share, where) for part, share in shares])

    def vectors(self, where: Geometry) -> Vectors | None:
        """Each part's vectors for its heads."""
        return beside(self._vectors(where), self.heads)

    def _apart(self, encoders: Sequence[Encoder], x: Tensor) -> Tensor:
        return _joined([encode(share) for encode, share in zip(encoders, self._shares(x), strict=True)])

    def _shares(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = len(self.parts)
        came = f"got {x.shape[1]} heads for {parts} schemes"
        need(x.shape[1] % parts == 0, "schemes share queries and keys out evenly", came, "use more key heads")
        return x.tensor_split(parts, 1)

    def _spread(self, made: list[Tensor | None]) -> Tensor | None:
        """The parts' results beside each other in the axis of heads; 0 for those without."""
        some = next((x for x in made if x is not None), None)
        if some is None:
            return None
        rows, share = max(x.shape[0] for x in made if x is not None), self.heads // len(made)
        shape = (rows, share, *some.shape[2:])
        return torch.cat([some.new_zeros(shape) if x is None else x.expand(shape) for x in made], 1)


def _total(made: Iterable[Tensor | None]) -> Tensor | None:
    total = None
    for one in made:
        if one is not None:
            total = one if total is None else total + one
    return total


def _in_turn(encoders: Sequence[Encoder], x: Tensor) -> Tensor:
    for encode in encoders:
        x = encode(x)
    return x


def _joined(shares: list[Tensor]) -> Tensor:
    # a part that widens its heads must not change the products of the others
    width = max(share.shape[-1] for share in shares)
    return torch.cat([nn.functional.pad(share, (0, width - share.shape[-1])) for share in shares], 1)
