"""Attention as a module for people's own models."""

import torch

from ordinate.checks import need, need_window
from ordinate.geometry import Geometry
from ordinate.mixer import KeyValues
from ordinate.projections import Projections, Variant
from ordinate.scheme import Scheme
from ordinate.schemes.none import Unmarked
from ordinate.shapes import Context, Tokens
from ordinate.tensors import need_size, need_vectors


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
        context: Context | KeyValues | None = None,
        where: Geometry | None = None,
        state: KeyValues | None = None,
    ) -> tuple[Tokens, KeyValues]:
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
        if not isinstance(context, KeyValues):
            self._check_tokens("context", context)
        if where is None:
            where = _cross(x, context)
        at = self.scheme.at(where)
        if not isinstance(context, KeyValues):
            context = self.remember(context, self.scheme, at.where.k_pos)
        return self.attend_across(x, context, at), context

    def _geometry(self, x: Tokens, state: KeyValues | None) -> Geometry:
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


def _cross(x: Tokens, context: Context | KeyValues) -> Geometry:
    keys = context.k.shape[2] if isinstance(context, KeyValues) else context.shape[1]
    q_pos, k_pos = (torch.arange(tokens, device=x.device)[None, :, None] for tokens in (x.shape[1], keys))
    return Geometry(q_pos, k_pos, ordered=True)
