"""Queries, keys and values of several heads: what every attention module is made of."""

from dataclasses import dataclass

import torch
from torch import nn

from ordinate.attention import attend, attend_cached
from ordinate.checks import need_fraction, need_positive
from ordinate.linear import Linear, linear
from ordinate.mixer import KeyValues, check_heads
from ordinate.room import Longest
from ordinate.route import Formula
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Context, Keys, Outputs, Positions, Queries, Tokens, Values
from ordinate.tensors import need_tokens


@dataclass(frozen=True)
class Variant:
    """What the heads of some models have, and those of the first transformer had not.

    Args:
        head_width: channels of a head; None: width / heads.
        scale: multiplies the products of queries and keys; None: 1 / sqrt(head_width).
        bias: whether numbers are added after each projection (GPT-2, gpt-oss).
        out_bias: whether they are added after the last one; None: as `bias` says (Qwen2 has none there).
        qk_norm: whether each head's queries and keys are brought to one length before positions enter (Qwen3).
        epsilon: added to what that norm divides by.
        cap: products are bent to stay between -cap and cap (Gemma 2); None: they are left as they are.
        sinks: whether each head learns how much weight it may give to nothing (gpt-oss).
    """

    head_width: int | None = None
    scale: float | None = None
    bias: bool = False
    out_bias: bool | None = None
    qk_norm: bool = False
    epsilon: float = 1e-6
    cap: float | None = None
    sinks: bool = False

    def __post_init__(self) -> None:
        for name in ("head_width", "scale", "epsilon", "cap"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))


class Projections(nn.Module):
    """Queries, keys and values of several heads, their attention, and what reads it.

        y = concatenation over heads of softmax(q k^T scale + bias) v, times W_O

    Args:
        width: columns of the model.
        heads: query heads.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        dropout: share of attention weights dropped in training.
        variant: what else the heads have.

    Raises:
        ValueError: sizes that do not fit each other.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int | None, dropout: float, variant: Variant | None = None
    ) -> None:
        super().__init__()
        variant = Variant() if variant is None else variant
        kv_heads = heads if kv_heads is None else kv_heads
        for name, value in (("width", width), ("heads", heads)):
            need_positive(name, value)
        check_heads(width if variant.head_width is None else heads * variant.head_width, heads, kv_heads)
        need_fraction("dropout", dropout)
        self.width, self.dropout, self.cap = width, dropout, variant.cap
        self.head_width = width // heads if variant.head_width is None else variant.head_width
        # a scheme may widen q and k: their channels count as they were
        self.scale = self.head_width**-0.5 if variant.scale is None else variant.scale
        self.widths = [heads * self.head_width, kv_heads * self.head_width, kv_heads * self.head_width]
        self.project: nn.Linear = Linear(width, sum(self.widths), bias=variant.bias)
        out_bias = variant.bias if variant.out_bias is None else variant.out_bias
        self.out: nn.Module = Linear(self.widths[0], width, bias=out_bias)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.head_width, eps=variant.epsilon) if variant.qk_norm else nn.Identity() for _ in range(2)
        )
        self.sinks = nn.Parameter(torch.zeros(heads)) if variant.sinks else None

    def attend_self(self, x: Tokens, at: Placed, state: KeyValues | None) -> tuple[Tokens, KeyValues]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        q, k, v = self.project_heads(x)
        q, k = at.encode(self.q_norm(q), self.k_norm(k))
        state = KeyValues(k, v) if state is None else state.extend(k, v)
        return self.gather(self.attended(q, state.k, state.v, at, state.longest)), state

    def remember(self, context: Context, scheme: Scheme, pos: Positions) -> KeyValues:
        """The keys and values of tokens that those of another sequence will look at.

        Args:
            context: these tokens.
            scheme: marks the keys.
            pos: where they stand.
        """
        need_tokens("context", context, context.shape[1], pos)
        k, v = self.offer(context)
        return KeyValues(scheme.encode_key(self.k_norm(k), pos), v)

    def attend_across(self, x: Tokens, seen: KeyValues, at: Placed) -> Tokens:
        """Attend from the tokens of `x`, which stand where the queries do, to the keys of another sequence."""
        return self.gather(self.attended(self.queries(x, at), seen.k, seen.v, at))

    def queries(self, x: Tokens, at: Placed) -> Queries:
        """The queries of tokens that look at others, where they stand."""
        need_tokens("x", x, x.shape[1], at.where.q_pos)
        return at.scheme.encode_query(self.q_norm(self.ask(x)), at.where.q_pos)

    def ask(self, x: Tokens) -> Queries:
        """The queries of tokens that look at others, before positions enter."""
        return self._part(x, slice(self.widths[0]))

    def offer(self, context: Context) -> tuple[Keys, Values]:
        """The keys and values of tokens that others look at, before positions enter."""
        k, v = self._part(context, slice(self.widths[0], None)).chunk(2, 1)
        return k, v

    def project_heads(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        """Queries, keys and values of the same tokens, before positions enter."""
        q, k, v = (self.split_heads(part) for part in self.project(x).split(self.widths, -1))
        return q, k, v

    def split_heads(self, x: Tokens) -> Queries:
        """Columns as heads."""
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def attended(self, q: Queries, k: Keys, v: Values, at: Placed, longest: Longest | None = None) -> Outputs:
        """What each head reads; queries and keys come encoded."""
        return self.compute(q, k, v, at, self.formula, longest=longest)

    def compute(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        at: Placed,
        formula: Formula,
        route: str | None = None,
        longest: Longest | None = None,
    ) -> Outputs:
        """The attention itself: what watches a model puts a function of its own in this place."""
        dropout = self.dropout if self.training else 0.0
        if longest is not None and not dropout:
            return attend_cached(q, k, v, at, longest, scale=self.scale, formula=formula, route=route)
        return attend(q, k, v, at, scale=self.scale, dropout=dropout, formula=formula, route=route)

    @property
    def formula(self) -> Formula:
        """What is changed in the formula of attention."""
        return Formula(self.cap, self.sinks)

    def gather(self, y: Outputs) -> Tokens:
        """What the heads have read, as tokens."""
        return self.out(y.transpose(1, 2).flatten(2))

    def _part(self, x: Tokens, rows: slice) -> Queries:
        bias = None if self.project.bias is None else self.project.bias[rows]
        return self.split_heads(linear(x, self.project.weight[rows], bias))
