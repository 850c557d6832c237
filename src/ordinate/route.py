"""How attention is computed: one contract, several ways."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate import catalog
from ordinate.checks import need, need_positive
from ordinate.geometry import Geometry
from ordinate.room import Longest
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Totals, Values, Visible, Weights
from ordinate.tensors import need_vectors

# scores that a block of rows holds
SCORES = 2**22


@dataclass(frozen=True, eq=False)
class Formula:
    """What some models change in the formula of attention.

        softmax([cap tanh(q k^T scale / cap) + bias, sinks]) [v, 0]

    Args:
        cap: products of queries and keys are bent to stay between -cap and cap, before a bias is added (Gemma 2).
        sinks: for each head the score of a place that every query sees and that has nothing to give: it takes weight
            from the keys, so that a head may stay silent (gpt-oss).
        weights: makes weights of scores, and of who sees whom, in place of the softmax: 0 where hidden, and each
            query's by itself. One that looks at other queries too is right in the route `reference` only.
    """

    cap: float | None = None
    sinks: Float[Tensor, " h"] | None = None
    weights: Callable[[Weights, Visible], Weights] | None = None

    def __post_init__(self) -> None:
        if self.cap is not None:
            need_positive("cap", self.cap)
        if self.sinks is not None:
            need_vectors("sinks", self.sinks, "heads")
            need(self.weights is None, "sinks are a part of the softmax", "got weights too", "leave one of them out")

    @property
    def changes(self) -> tuple[str, ...]:
        """The names of what it changes."""
        return tuple(name for name in ("cap", "sinks", "weights") if getattr(self, name) is not None)

    def bend(self, scores: Weights) -> Weights:
        """Products of queries and keys, kept under the cap."""
        return scores if self.cap is None else self.cap * (scores / self.cap).tanh()

    def column(self, scores: Weights) -> Float[Tensor, "b h i sinks"]:
        """The scores of the sinks beside these of keys: a column, or none."""
        if self.sinks is None:
            return scores[..., :0]
        return self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)

    def check_heads(self, heads: int) -> None:
        """Raise a ValueError unless there is a sink for each of these heads, or none at all."""
        if self.sinks is not None:
            came = f"got {len(self.sinks)} for {heads} heads"
            need(len(self.sinks) == heads, "each head has a sink", came, "give one number for each head")


@dataclass(frozen=True, eq=False)
class Call:
    """Everything that one attention needs: softmax(q k^T * scale + bias) v over the visible pairs.

    Args:
        q: encoded queries.
        k: encoded keys; fewer heads than the queries when heads are grouped.
        v: values, as many as keys.
        at: the scheme and the geometry.
        scale: multiplies q.k.
        dropout: share of the weights set to zero, the others grow to make up for it.
        formula: what is changed in the formula.
        longest: tells the length of each head's longest key; None: nothing is known of the keys.
    """

    q: Queries
    k: Keys
    v: Values
    at: Placed
    scale: float
    dropout: float
    formula: Formula = Formula()
    longest: Longest | None = None

    @property
    def where(self) -> Geometry:
        """The geometry."""
        return self.at.where

    @property
    def groups(self) -> int:
        """Query heads that share a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key, over batch and heads."""
        return math.prod(self.q.shape[:3]) * self.k.shape[2]

    @property
    def finite(self) -> bool:
        """Whether q, k and v hold finite numbers only."""
        # a sum of float16 overflows; bfloat16 reaches as far as float32, and is summed faster as it is
        wide = torch.float32 if self.q.dtype == torch.float16 else None
        total = sum(x.detach().sum(dtype=wide) for x in (self.q, self.k, self.v))
        return bool(torch.as_tensor(total).isfinite())

    @property
    def steepest(self) -> float:
        """What no product of a query and a key exceeds."""
        highest = 1.0
        for x in (self.q, self.k):
            low, high = x.detach().aminmax()
            highest *= max(-low.item(), high.item())
        return highest * self.q.shape[3] * abs(self.scale)

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products, hidden pairs included."""
        return 2 * self.pairs * (self.q.shape[3] + self.v.shape[3])


def plain(call: Call) -> Outputs:
    """The formula of attention in plain lines, for numbers that are finite: every score is held."""
    v = call.v.repeat_interleave(call.groups, 1)
    weights = weigh(scores(call), call.where.visible, call.formula).to(v.dtype)
    weights = nn.functional.dropout(weights, call.dropout)
    carried = call.at.scheme.carry(weights, call.where)
    return weights @ v if carried is None else weights @ v + carried


def careful(call: Call) -> Outputs:
    """The same for any numbers: the rows that see one that is not finite become NaN, and no others."""
    sound = [x.isfinite().all(-1) for x in (call.q, call.k, call.v)]
    # a hidden NaN would survive multiplication by a zero weight, so it is taken out first
    q, k, v = (x.masked_fill(~ok[..., None], 0.0) for x, ok in zip((call.q, call.k, call.v), sound, strict=True))
    out = plain(replace(call, q=q, k=k, v=v))
    seen = call.where.visible[:, None]
    keys = (sound[1] & sound[2]).repeat_interleave(call.groups, 1)
    poisoned = (seen & ~keys[:, :, None]).any(-1) | (seen.any(-1) & ~sound[0])
    return out.masked_fill(poisoned[..., None], float("nan"))


@torch.no_grad()
def log_sum_exp(call: Call) -> Totals:
    """The logarithm of the sum of exp(score) over what each query sees, in blocks of rows; -inf where nothing."""
    queries, keys = call.where.shape
    size, parts = max(1, SCORES // max(1, math.prod(call.q.shape[:2]) * keys)), []
    for begin in range(0, max(queries, 1), size):
        rows = slice(begin, begin + size)
        part = replace(call, q=call.q[:, :, rows], at=call.at.block(rows))
        scored = scores(part).masked_fill(~part.where.visible[:, None], float("-inf"))
        parts.append(torch.cat([scored, call.formula.column(scored)], -1).logsumexp(-1))
    return torch.cat(parts, 2)


def scores(call: Call) -> Weights:
    """What the softmax is taken of, for all pairs, hidden ones too."""
    scheme, k = call.at.scheme, call.k.repeat_interleave(call.groups, 1)
    # 16-bit scores overflow and forget neighbours: they are held in float32 at least
    wide = torch.promote_types(call.q.dtype, torch.float32)
    q, k = call.q.to(wide), k.to(wide)
    own = scheme.score(q, k, call.where)
    scored = call.formula.bend((q @ k.mT if own is None else own) * call.scale)
    for bias in (call.at.bias, scheme.content_bias(q, k, call.where)):
        if bias is not None:
            scored = scored + bias
    return scored


def weigh(scores: Weights, visible: Visible, formula: Formula) -> Weights:
    """The softmax of the scores over what each query sees, and its sink; 0 for a query that sees nothing.

    A bias of -inf hides a key as visibility does.
    """
    if formula.weights is not None:
        return formula.weights(scores, visible)
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    hidden = scores == float("-inf")
    # a row that sees nothing is reset before the softmax: masking its NaN afterwards would poison the gradient
    scores = scores.masked_fill(hidden.all(-1, keepdim=True), 0.0)
    scores = torch.cat([scores, formula.column(scores)], -1) if formula.sinks is not None else scores
    return scores.softmax(-1)[..., : hidden.shape[-1]].masked_fill(hidden, 0.0)


def table_refused(call: Call) -> str | None:
    """Why what the scheme adds to the scores is no table of distances; None: it is one, or nothing is added."""
    hooks = call.at.scheme.hooks
    others = [hook for hook in hooks if hook in ("score", "content_bias", "carry")]
    if others:
        return f"the scheme's {others[0]} is no table of distances"
    if "bias" in hooks and not (call.where.ordered and call.at.scheme.shift_invariant):
        return "the bias is no table of distances in this geometry"
    return None


class Route(ABC):
    """A way to compute attention.

    Must: `order`, `refuses`, `run`, `bytes`; agree with the route `reference`, forward and backward.
    May: `serves`, where it can change the formula.
    """

    order: ClassVar[int]
    """Routes are tried from the lowest order up."""
    serves: ClassVar[frozenset[str]] = frozenset()
    """What it can change in the formula: `cap`, `sinks`, `weights`."""

    def refusal(self, call: Call) -> str | None:
        """Why this route cannot take the call, a formula that it does not know included; None: it takes it."""
        unknown = [name for name in call.formula.changes if name not in self.serves]
        return f"it knows no {unknown[0]}" if unknown else self.refuses(call)

    @abstractmethod
    def refuses(self, call: Call) -> str | None:
        """Why this route cannot take a call whose formula it knows; None: it takes it."""

    @abstractmethod
    def run(self, call: Call) -> Outputs:
        """The attention; a query that sees nothing gets exactly 0 and passes no gradient."""

    def run_with_lse(self, call: Call) -> tuple[Outputs, Totals]:
        """The attention, and each query's log-sum-exp; a route that has it anyway overrides this."""
        return self.run(call), log_sum_exp(call)

    @abstractmethod
    def bytes(self, call: Call) -> int:
        """How much the forward pass holds beyond its inputs and its output."""


@cache
def routes() -> dict[str, Route]:
    """Every route by name, in the order in which they are tried."""
    folder = "ordinate.routes"
    made = {name: catalog.load(folder, Route, name)() for name in catalog.names(folder)}
    return dict(sorted(made.items(), key=lambda entry: entry[1].order))
