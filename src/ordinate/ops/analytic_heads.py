"""Attention heads with analytic weights that attend to a chosen offset or to the first token, without training.

A head maps the vectors `x` at the positions to queries x W_q + b_q and keys x W_k + b_k. The factor sqrt(d) by which
attention divides is included in the queries: a score is `strength` times the formula of each function.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Queries, Tokens
from ordinate.ops.rotate import Layout, join_pairs
from ordinate.ops.sinusoids import frequencies

Matrix = Float[Tensor, "width d"]
Vector = Float[Tensor, "d"]


@dataclass(frozen=True, eq=False)
class AnalyticHead:
    """Query and key projection of one attention head.

    Args:
        query: W_q.
        query_bias: b_q.
        key: W_k.
        key_bias: b_k.
    """

    query: Matrix
    query_bias: Vector
    key: Matrix
    key_bias: Vector

    def marks(self, x: Tokens) -> tuple[Queries, Queries]:
        """Project vectors to queries and keys with one head, as `attend` takes them."""
        q, k = x @ self.query + self.query_bias, x @ self.key + self.key_bias
        return q[:, None], k[:, None]


def offset_head_sinusoidal(width: int, offset: int, strength: float, theta: float = 10_000.0) -> AnalyticHead:
    """Head that attends `offset` tokens back, for added sinusoidal position embeddings.

        score(i, j) = strength * sum over m of cos w_m (i - j - offset)

    Rotating each pair of columns shifts the query's position embedding by the offset: W_q does not depend on the
    position.

    Args:
        width: columns of the position embedding, even.
        offset: distance to the attended token; negative: tokens ahead [tokens].
        strength: inverse temperature of the pattern.
        theta: base of the wavelengths.
    Source: Vaswani et al. 2017, section 3.5: PE(pos + k) is a linear function of PE(pos).
    """
    need(width % 2 == 0, "sines and cosines come in pairs", f"got width {width}", "choose an even width")
    rates = torch.tensor(frequencies(width, theta, "vaswani", "paper"), dtype=torch.float64)
    cos, sin = (offset * rates).cos(), (offset * rates).sin()
    # [sin a, cos a] -> [sin(a - b), cos(a - b)]
    blocks = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], 1)
    turned = torch.block_diag(*blocks.unbind())
    nothing, same = turned.new_zeros(width), torch.eye(width, dtype=torch.float64)
    return AnalyticHead(turned * strength * math.sqrt(width), nothing, same, nothing)


def offset_head_learned(table: Float[Tensor, "places width"], offset: int, strength: float) -> AnalyticHead:
    """Head that attends `offset` tokens back, for added position embeddings from any table.

        score(i, j) = strength * [j = i - offset]

    The pseudo-inverse of the table maps each position to a one-hot vector, and the query's is shifted. Queries whose
    target position does not exist attend uniformly.

    Raises:
        ValueError: more positions than columns, or linearly dependent rows, which no linear map can separate.
    """
    places, width = table.shape
    rank = int(torch.linalg.matrix_rank(table.double()))
    need(
        rank == places,
        "the rows of the table must be linearly independent",
        f"got {places} positions of rank {rank} in {width} columns",
        "give fewer positions, or a wider table",
    )
    back = torch.linalg.pinv(table.double())
    # the one-hot query of position j + offset has its 1 in column j
    moved = torch.zeros_like(back)
    moved[:, max(0, -offset) : places - max(0, offset)] = back[:, max(0, offset) : places - max(0, -offset)]
    nothing = back.new_zeros(places)
    return AnalyticHead(moved * strength * math.sqrt(places), nothing, back, nothing)


def offset_head_rope(
    head_width: int,
    offset: int,
    strength: float,
    theta: float = 10_000.0,
    *,
    width: int = 1,
    layout: Layout = "half",
    pairs: int | None = None,
) -> AnalyticHead:
    """Head that attends `offset` tokens back, for rotary position embeddings.

        score(i, j) = strength * sum over m of cos w_m (i - j - offset)

    Queries and keys are constant biases; the query is rotated back by the offset before RoPE rotates both.

    Args:
        head_width: channels of the head.
        offset: distance to the attended token; negative: tokens ahead [tokens].
        strength: inverse temperature of the pattern.
        theta: base of the wavelengths.
        width: columns of its input, which it ignores.
        layout: which channels make a pair.
        pairs: number of pairs that it uses, those of highest frequency; None: all.
    Source: Barbero et al. 2025, https://arxiv.org/abs/2410.06205, section 5: the fastest pairs make such heads.
    """
    rates = torch.tensor(frequencies(head_width, theta, "vaswani", "paper"), dtype=torch.float64)
    used = (torch.arange(len(rates)) < (len(rates) if pairs is None else pairs)).double()
    angle = offset * rates
    query = join_pairs(angle.cos() * used, -angle.sin() * used, layout) * strength * math.sqrt(head_width)
    nothing = query.new_zeros(width, head_width)
    return AnalyticHead(nothing, query, nothing, join_pairs(used, torch.zeros_like(used), layout))


def first_token_head(table: Float[Tensor, "places width"], strength: float) -> AnalyticHead:
    """Head that attends to the first token from every position: each query is the first row of the table.

        score(i, j) = strength * p_0 . p_j

    Works where p_0 . p_0 is the largest product: for sinusoids, and for rows of equal norm. RoPE alone cannot do
    this, since its scores depend on i - j only; it needs a feature in the content of the first token.
    """
    width = table.shape[1]
    nothing, same = table.new_zeros(width, width).double(), torch.eye(width, dtype=torch.float64)
    return AnalyticHead(nothing, table[0].double() * strength * math.sqrt(width), same, nothing[0])


def slope_for_distance(distance: float) -> float:
    """Return the ALiBi slope whose mean attention distance is `distance`, for a causal head with an infinite past.

        sum over d of d e^(-m d) / sum over d of e^(-m d) = e^-m / (1 - e^-m),    m = ln(1 + 1 / distance)

    Args:
        distance: [tokens].
    """
    need_positive("distance", distance)
    return math.log1p(1 / distance)


def offset_bias(offset: int, strength: float, reach: int) -> Float[Tensor, "offsets"]:
    """Table of relative position biases by offset i - j, from -reach to reach, that attends `offset` tokens back.

    Raises:
        ValueError: the offset lies outside of the table.
    """
    need(abs(offset) <= reach, "offset must lie within reach", f"got {offset} of {reach}", "give a larger reach")
    return strength * (torch.arange(-reach, reach + 1) == offset).double()


def first_token_bias(strength: float, reach: int) -> Float[Tensor, "offsets"]:
    """Table of relative position biases by offset i - j, from -reach to reach, that attends to the first token.

    The bias grows linearly by `strength` per token; a causal head then puts 1 - e^-strength of its attention on the
    first token.
    """
    return strength * torch.arange(-reach, reach + 1, dtype=torch.float64)
