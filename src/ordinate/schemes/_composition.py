"""Composed schemes: several in every head (sum), or a different one for each group of heads."""

import copy
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import (
    Bias,
    EmbeddedTokens,
    EncodedKeys,
    EncodedQueries,
    Keys,
    Outputs,
    Positions,
    Queries,
    Tokens,
    Weights,
)
from ordinate.ops.log_bias import LogBias
from ordinate.ops.relative import Projection, RelativeVectors, add_vectors, concat_vectors
from ordinate.schemes._fast_forms import (
    Encoder,
    depends_on_offsets,
    encoders_of,
    log_bias_of,
    reach_of,
    slopes_of,
    vectors_of,
)
from ordinate.schemes._scheme import HOOK_TARGETS, Scheme

MODEL_SIZES = ("width", "heads", "head_width")


class Composition(Scheme):
    """Base class of composed schemes: derives the declared properties from those of the parts.

    Args:
        parts: the schemes.
    """

    def __init__(self, *parts: Scheme) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        # of a copy, the parts that are bound to the projections of a layer
        self.bound: list[Scheme] = []
        self.axes = tuple(axes for axes in (1, 2, 3) if all(axes in part.axes for part in parts))
        need(
            bool(self.axes),
            "composed schemes must support the same number of position axes",
            f"got {', '.join(f'{type(part).__name__} for {part.axes}' for part in parts)}",
            "compose schemes for the same kind of input",
        )
        self.integer_positions = any(part.integer_positions for part in parts)
        self.per_layer = any(part.per_layer for part in parts)
        self.reads_mask = any(part.reads_mask for part in parts)
        self.shift_invariant = all(depends_on_offsets(part) and "remap_positions" not in part.hooks for part in parts)
        # torch.compile cannot trace `min` with a default
        lengths = [part.max_length for part in parts if part.max_length is not None]
        self.max_length = min(lengths) if lengths else None
        self.appended_width = sum(part.appended_width for part in parts)
        reaches = [reach_of(part) for part in parts if "bias" in part.hooks]
        known = [reach for reach in reaches if reach is not None]
        self.bias_reach = max(known) if known and len(known) == len(reaches) else None
        # a size that any part was built for is required of the input of the whole; tokens concern those that embed
        for part in sorted(parts, key=lambda part: "embed" in part.hooks):
            vars(self).update({size: vars(part)[size] for size in MODEL_SIZES if size in vars(part)})
        self.citation = "\n\n".join(dict.fromkeys(part.citation for part in parts))

    @property
    def members(self) -> list[Scheme]:
        """Parts as a list (`parts` is typed as a list of modules)."""
        return self.bound or [cast(Scheme, part) for part in self.parts]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Names of all hooks that any part uses."""
        return self._used_hooks()

    def _used_hooks(self) -> tuple[str, ...]:
        # a method, since torch.compile cannot trace `super().hooks`
        return tuple(hook for hook in HOOK_TARGETS if any(hook in part.hooks for part in self.members))

    def reset_parameters(self) -> None:
        """Initialise the parameters of all parts anew."""
        for part in self.members:
            part.reset_parameters()

    def encode_query(self, q: Queries, pos: Positions) -> EncodedQueries:
        """Encode positions on the queries by all parts."""
        return self.make_encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> EncodedKeys:
        """Encode positions on the keys by all parts."""
        return self.make_encoders(pos)[1](k)

    def _vectors(self, where: Geometry) -> list[RelativeVectors | None]:
        """Relative vectors of each part; empty ones for a part that uses neither `content_bias` nor `value_bias`."""
        reads = [{"content_bias", "value_bias"} & set(part.hooks) for part in self.members]
        pairs = zip(self.members, reads, strict=True)
        return [vectors_of(part, where) if content else RelativeVectors(reach=0.0) for part, content in pairs]

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless every part supports these positions."""
        for part in self.members:
            # a part that changes positions has seen the original ones in `remap_positions`; these are its results
            if "remap_positions" not in part.hooks:
                part.check_positions(pos)


class Sum(Composition):
    """Several schemes in every head: encodings are applied in sequence, and biases are summed.

        x -> second(first(x)),   bias = first + second

    Args:
        parts: the schemes, in the order in which they are applied.

    Raises:
        ValueError: no part, parts for different numbers of axes, or two that replace q.k by their own score.
    """

    def __init__(self, *parts: Scheme) -> None:
        # schemes that append columns to the embedding come first, so that those that add to it cover all columns
        super().__init__(*sorted(_schemes(parts), key=lambda part: part.appended_width == 0))
        scorers = [type(part).__name__ for part in parts if "score" in part.hooks]
        came = f"got {' and '.join(scorers)}"
        need(len(scorers) < 2, "only one scheme can replace q.k by its own score", came, "leave one of them out")

    @property
    def hooks(self) -> tuple[str, ...]:
        """Names of all hooks that any part uses, and `bind_projections` if one needs it."""
        needed = any("bind_projections" in part.hooks for part in self.members)
        return (*self._used_hooks(), "bind_projections") if needed else self._used_hooks()

    def bind_projections(self, query: Projection, key: Projection) -> Scheme:
        """Return a copy whose parts use the query and key projections of a layer, where they need them."""
        bound = copy.copy(self)
        bound.bound = [
            cast(Any, part).bind_projections(query, key) if "bind_projections" in part.hooks else part
            for part in self.members
        ]
        return bound

    def remap_positions(self, where: Geometry) -> Geometry:
        """Change the positions by each part in turn."""
        for part in self.members:
            where = part.remap_positions(where)
        return where

    def embed(self, x: Tokens, pos: Positions) -> EmbeddedTokens:
        """Add position embeddings of each part in turn."""
        for part in self.members:
            x = part.embed(x, pos)
        return x

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Chain the encoders of the parts."""
        made = [encoders_of(part, pos) for part in self.members]
        return partial(_in_turn, [of_q for of_q, _ in made]), partial(_in_turn, [of_k for _, of_k in made])

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Return the score of the one part that has one."""
        return _total(part.score(q, k, where) for part in self.members)

    def bias(self, where: Geometry) -> Bias | None:
        """Sum the biases of the parts."""
        return _total(part.bias(where) for part in self.members)

    def linear_bias(self, where: Geometry) -> Float[Tensor, "2 h"] | None:
        """Sum the slopes of the parts, if the biases of all are linear."""
        slopes = [slopes_of(part, where) for part in self.members if "bias" in part.hooks]
        known = [x for x in slopes if x is not None]
        return sum(known[1:], known[0]) if known and len(known) == len(slopes) else None

    def log_bias(self, where: Geometry) -> LogBias | None:
        """Return that of the one part that has a bias, if there is only one."""
        biased = [part for part in self.members if "bias" in part.hooks]
        return log_bias_of(biased[0], where) if len(biased) == 1 else None

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Sum the content-dependent biases of the parts."""
        return _total(part.content_bias(q, k, where) for part in self.members)

    def value_bias(self, weights: Weights, where: Geometry) -> Outputs | None:
        """Sum the value-side terms of the parts."""
        return _total(part.value_bias(weights, where) for part in self.members)

    def relative_vectors(self, where: Geometry) -> RelativeVectors | None:
        """Sum the relative vectors of the parts."""
        return reduce(add_vectors, self._vectors(where))


class HeadGroups(Composition):
    """A different scheme for each group of heads: heads are split evenly, in order, between the parts.

    Args:
        parts: the schemes, each built for its share of the heads.
        heads: query heads of the model.

    Raises:
        ValueError: no part, the heads cannot be split evenly, or a part acts on token embeddings or positions, which
            are common to all heads.
    """

    hooks = Composition.hooks

    def __init__(self, *parts: Scheme, heads: int) -> None:
        super().__init__(*_schemes(parts))
        need_whole("heads", heads)
        need_positive("heads", heads)
        came = f"got {heads} heads for {len(parts)} schemes"
        need(
            heads % len(parts) == 0,
            "the number of schemes must divide the number of heads",
            came,
            "list a number of schemes that divides the heads",
        )
        for part in parts:
            used = {"remap_positions", "embed"} & set(part.hooks)
            came = (
                f"got {type(part).__name__}, which enters at {', '.join(HOOK_TARGETS[hook] for hook in sorted(used))}"
            )
            need(not used, "a scheme for some of the heads must act inside attention", came, "add it with + instead")
        self.heads = heads

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Apply the encoders of each part to its heads; where none encodes, heads need not be divided."""
        made, used = [encoders_of(part, pos) for part in self.members], self.hooks
        of_q, of_k = (
            partial(self._by_group, encoders) if hook in used else partial(_in_turn, ())
            for hook, encoders in zip(("encode_query", "encode_key"), zip(*made, strict=True), strict=True)
        )
        return of_q, of_k

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Concatenate the scores of the parts; q.k for a part without its own."""
        if "score" not in self.hooks:
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        shares = zip(self.members, self._shares(q.to(wide)), self._shares(k.to(wide)), strict=True)
        scores = [(part.score(q, k, where), q @ k.mT) for part, q, k in shares]
        return torch.cat([product if own is None else own for own, product in scores], 1)

    def bias(self, where: Geometry) -> Bias | None:
        """Concatenate the biases of the parts along the heads."""
        return self._spread([part.bias(where) for part in self.members])

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Concatenate the content-dependent biases of the parts along the heads."""
        shares = zip(self.members, self._shares(q), self._shares(k), strict=True)
        return self._spread([part.content_bias(q, k, where) for part, q, k in shares])

    def value_bias(self, weights: Weights, where: Geometry) -> Outputs | None:
        """Concatenate the value-side terms of the parts along the heads."""
        shares = zip(self.members, self._shares(weights), strict=True)
        return self._spread([part.value_bias(share, where) for part, share in shares])

    def relative_vectors(self, where: Geometry) -> RelativeVectors | None:
        """Concatenate the relative vectors of the parts along the heads."""
        return concat_vectors(self._vectors(where), self.heads)

    def _by_group(self, encoders: Sequence[Encoder], x: Tensor) -> Tensor:
        return _joined([encode(share) for encode, share in zip(encoders, self._shares(x), strict=True)])

    def _shares(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = len(self.parts)
        need(
            x.shape[1] % parts == 0,
            "the number of schemes must divide the numbers of query and key heads",
            lambda: f"got {x.shape[1]} heads for {parts} schemes",
            "use more key heads",
        )
        return x.tensor_split(parts, 1)

    def _spread(self, made: list[Tensor | None]) -> Tensor | None:
        """Concatenate results along the heads; zeros for parts without one."""
        some = next((x for x in made if x is not None), None)
        if some is None:
            return None
        rows, share = max(x.shape[0] for x in made if x is not None), self.heads // len(made)
        shape = (rows, share, *some.shape[2:])
        return torch.cat([some.new_zeros(shape) if x is None else x.expand(shape) for x in made], 1)


def _schemes(parts: tuple[Scheme, ...]) -> tuple[Scheme, ...]:
    """The parts, if there are any and all are schemes."""
    need(bool(parts), "a composition is made of schemes", "got none", "give one or more; NoPosition() adds nothing")
    for part in parts:
        if not isinstance(part, Scheme):
            came = f"got {type(part).__name__}"
            raise TypeError(f"a composition is made of schemes; {came}; give instances of schemes")
    return parts


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
    # some schemes widen their heads: zero padding gives all one width, and leaves the products q.k unchanged
    width = max(share.shape[-1] for share in shares)
    return torch.cat([nn.functional.pad(share, (0, width - share.shape[-1])) for share in shares], 1)
