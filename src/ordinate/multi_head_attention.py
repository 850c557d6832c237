"""Attention as a module for people's own models."""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import nn
from torch.nn.functional import linear

from ordinate.attention import attend
from ordinate.checks import need, need_fraction, need_positive, need_window
from ordinate.geometry import Geometry
from ordinate.mixer import State, check_heads
from ordinate.route import Formula
from ordinate.scheme import Placed, Scheme
from ordinate.schemes.none import Unmarked
from ordinate.shapes import Context, Queries, Tokens
from ordinate.tensors import need_size, need_tokens, need_vectors


@dataclass(frozen=True)
class Variant:
    """What the heads of some models have, and those of the first transformer had not.

    Args:
        head_width: channels of a head; None: width / heads.
        scale: multiplies the products of queries and keys; None: 1 / sqrt(head_width).
        bias: whether numbers are added after each projection (GPT-2, gpt-oss).
        qk_norm: whether each head's queries and keys are brought to one length before positions enter (Qwen3).
        cap: products are bent to stay between -cap and cap (Gemma 2); None: they are left as they are.
        sinks: whether each head learns how much weight it may give to nothing (gpt-oss).
    """

    head_width: int | None = None
    scale: float | None = None
    bias: bool = False
    qk_norm: bool = False
    cap: float | None = None
    sinks: bool = False

    def __post_init__(self) -> None:
        for name in ("head_width", "scale", "cap"):
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
        self.project = nn.Linear(width, sum(self.widths), bias=variant.bias)
        self.out = nn.Linear(self.widths[0], width, bias=variant.bias)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.head_width, eps=1e-6) if variant.qk_norm else nn.Identity() for _ in range(2)
        )
        self.sinks = nn.Parameter(torch.zeros(heads)) if variant.sinks else None

    def attend_self(self, x: Tokens, at: Placed, state: State | None) -> tuple[Tokens, State]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        q, k, v = (self._split(part) for part in self.project(x).split(self.widths, -1))
        q, k = at.encode(self.q_norm(q), self.k_norm(k))
        state = State(k, v) if state is None else state.extend(k, v)
        return self._read(q, state, at), state

    def attend_across(self, x: Tokens, context: Context | State, at: Placed) -> tuple[Tokens, State]:
        """Attend from the tokens of `x` to those of `context`, which stand at the places of the keys."""
        need_tokens("x", x, x.shape[1], at.where.q_pos)
        q = self.q_norm(self._projected(x, slice(self.widths[0])))
        if not isinstance(context, State):
            need_tokens("context", context, context.shape[1], at.where.k_pos)
            k, v = self._projected(context, slice(self.widths[0], None)).chunk(2, 1)
            context = State(at.scheme.encode_key(self.k_norm(k), at.where.k_pos), v)
        return self._read(at.scheme.encode_query(q, at.where.q_pos), context, at), context

    def _projected(self, x: Tokens, rows: slice) -> Queries:
        bias = None if self.project.bias is None else self.project.bias[rows]
        return self._split(linear(x, self.project.weight[rows], bias))

    def _split(self, x: Tokens) -> Queries:
        return rearrange(x, "b n (h d) -> b h n d", d=self.head_width)

    def _read(self, q: Queries, state: State, at: Placed) -> Tokens:
        dropout = self.dropout if self.training else 0.0
        formula = Formula(self.cap, self.sinks)
        y = attend(q, state.k, state.v, at, scale=self.scale, dropout=dropout, formula=formula)
        return self.out(rearrange(y, "b h n d -> b n (h d)"))


class MultiHeadAttention(Projections):
    """Each token asks, and takes a weighted mean of the values of what it sees: for models of your own.

        y = softmax(q k^T / sqrt(d) + bias) v W_O,   q = x W_Q,   [k, v] = (x or context) [W_K, W_V]

    It looks at the tokens themselves, at those it remembers and themselves (`state`), or at other tokens (`context`).
    A scheme marks queries and keys where they stand, biases the scores, or both.

    Args:
        width: columns of the model.
        heads: query heads.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        scheme: how positions enter; None: not at all.
        causal: whether a token is hidden from those before it, as in text that is written from left to right.
        window: how many tokens each one sees at most [tokens], itself included; None: all.
        dropout: share of attention weights dropped in training.
        variant: what else the heads have: biases, norms, a cap, sinks; None: nothing.

    Raises:
        ValueError: sizes that do not fit each other or the scheme, or a scheme that marks tokens.
    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; groups from Ainslie et al. 2023, GQA,
        https://arxiv.org/abs/2305.13245.
    Departs: no biases in the projections unless the variant says so.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        scheme: Scheme | None = None,
        causal: bool = True,
        window: int | None = None,
        dropout: float = 0.0,
        variant: Variant | None = None,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, variant)
        need_window(window)
        self.scheme = Unmarked() if scheme is None else scheme
        self.causal, self.window = causal, window
        need(
            "embed" not in self.scheme.hooks,
            "attention takes schemes that act inside it",
            f"got {type(self.scheme).__name__}, which marks the tokens before the first layer",
            "mark them yourself: x = scheme.at(where).embed(x), and leave the scheme out here",
        )
        need_size("the attention", self.scheme, "heads", heads)
        need_size("the attention", self.scheme, "head_width", self.head_width)

    def forward(
        self,
        x: Tokens,
        context: Context | State | None = None,
        where: Geometry | None = None,
        state: State | None = None,
    ) -> tuple[Tokens, State]:
        """Attend from the tokens of `x`.

        Args:
            x: tokens that ask.
            context: what they look at instead of themselves; or the state that an earlier call with it returned, so
                that its keys need not be made again.
            where: where tokens stand, and which see each other; None: one text, after what is remembered, or all of
                the context, both counted from 0.
            state: what earlier calls remember of the tokens before these.

        Returns:
            The new tokens, and the keys and values that were looked at.

        Raises:
            ValueError: tensors that do not fit, a geometry for others, or one that is not causal where the module is.
        """
        self._check_tokens("x", x)
        if context is None:
            where = self._geometry(x, state) if where is None else where
            self._check_geometry(where)
            return self.attend_self(x, self.scheme.at(where), state)
        need(state is None, "tokens look at a context, or at what they remember", "got both", "leave one of them out")
        if not isinstance(context, State):
            self._check_tokens("context", context)
        if where is None:
            where = _cross(x, context)
        return self.attend_across(x, context, self.scheme.at(where))

    def _geometry(self, x: Tokens, state: State | None) -> Geometry:
        if self.causal:
            cached = 0 if state is None else state.k.shape[2]
            return Geometry.causal(x.shape[1], cached=cached, window=self.window, device=x.device)
        need(
            state is None,
            "tokens that see all places of a text remember none",
            "got a state",
            "say by `where` what they see, or build the module with causal=True",
        )
        return Geometry.full(x.shape[1], window=self.window, device=x.device)

    def _check_geometry(self, where: Geometry) -> None:
        for name, made, came in (
            ("causal", self.causal, where.hides_future),
            ("window", self.window, where.window),
        ):
            need(
                made == came,
                f"the geometry must be as the module was built, with {name}={made}",
                f"got a geometry with {came}",
                f"build both with the same {name}",
            )

    def _check_tokens(self, name: str, x: Tokens) -> None:
        need_vectors(name, x, "batch, tokens, width")
        came = f"got {tuple(x.shape)}"
        need(x.shape[2] == self.width, f"{name} must be {self.width} columns wide", came, "project it to that width")


def _cross(x: Tokens, context: Context | State) -> Geometry:
    keys = context.k.shape[2] if isinstance(context, State) else context.shape[1]
    q_pos, k_pos = (torch.arange(tokens, device=x.device)[None, :, None] for tokens in (x.shape[1], keys))
    return Geometry(q_pos, k_pos, ordered=True)
