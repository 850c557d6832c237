"""Attention whose query and key matrices are one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need, need_positive
from ordinate.mixer import Mixer, State
from ordinate.projections import Projections, Variant
from ordinate.scheme import Placed
from ordinate.shapes import Queries, Tokens, Values
from ordinate.tensors import need_size, need_vectors

Shared = Float[Tensor, "b shared n channels"]


@dataclass(frozen=True, eq=False)
class Seen(State):
    """What merged attention remembers.

    Args:
        k: what queries are compared with: the tokens themselves, for all heads, or what each head makes of them.
        v: the values.
    """

    k: Shared
    v: Values

    def extend(self, k: Shared, v: Values) -> "Seen":
        """This memory followed by what is newer."""
        need(
            self.k.shape[:2] == k.shape[:2],
            "what is remembered and what is new need one batch and the same heads",
            f"got {tuple(self.k.shape)} and {tuple(k.shape)}",
            "use the state with the batch and the mixer that returned it",
        )
        return Seen(torch.cat([self.k, k], 2), torch.cat([self.v, v], 2))


class Merged(Projections, Mixer[Seen]):
    """Softmax attention that compares tokens by one matrix a head, M in place of W_Q W_K^T.

        y = softmax(x M x^T / sqrt(d) + bias) v W_O,   v = x W_V

    Usual attention has M = W_Q W_K^T, of rank d. A full M may have any rank; one of low rank, M = U V^T with `rank`
    columns each, is usual attention in other letters, whose queries and keys have a width of their own.

    A full M costs width^2 numbers a head instead of 2 width d, and products of width channels instead of d. Its state
    holds tokens in place of keys. Rope cannot be merged: it turns queries and keys between W_Q and W_K, by angles
    that no one matrix holds. So it takes schemes that mark tokens or add to the scores.

    Args:
        width: columns of the model.
        heads: heads; their values have d channels.
        head_width: d; None: width / heads.
        rank: columns of U and V; None: M is full.
        scale: standard deviation of the model's weights at birth; a full M is born as a product of such W_Q and W_K.
        dropout: share of attention weights dropped in training.
    Source: the question https://stats.stackexchange.com/q/515477.
    Departs: scores are divided by sqrt(d), as those of usual attention are, whatever the rank.
    """

    honours = frozenset({"bias", "carry"})
    equivariant = True
    usual_scheme = "alibi"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int | None = None,
        rank: int | None = None,
        scale: float = 0.02,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, None, dropout, Variant(head_width=head_width))
        self.heads, self.rank = heads, rank
        self.project = nn.Linear(width, heads * self.head_width, bias=False)
        if rank is None:
            asked, found = (scale * torch.randn(heads, width, self.head_width) for _ in range(2))
            self.matrix = nn.Parameter(asked @ found.mT)
        else:
            need_positive("rank", rank)
            self.compare = nn.Linear(width, 2 * heads * rank, bias=False)

    def forward(self, x: Tokens, at: Placed, state: Seen | None = None) -> tuple[Tokens, Seen]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        (q, k), v = self._pairs(x), self.split_heads(self.project(x))
        state = Seen(k, v) if state is None else state.extend(k, v)
        # the tokens serve all heads
        return self.gather(self.attended(q, state.k.expand(-1, self.heads, -1, -1), state.v, at)), state

    def _pairs(self, x: Tokens) -> tuple[Queries, Shared]:
        """What is compared with what."""
        if self.rank is None:
            return torch.einsum("bnw,hwu->bhnu", x, self.matrix), x[:, None]
        q, k = self.compare(x).unflatten(-1, (2, self.heads, self.rank)).permute(2, 0, 3, 1, 4)
        return q, k
