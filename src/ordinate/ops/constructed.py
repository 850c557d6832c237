"""Heads in closed form: weights that nobody trained, and that look at a place of one's choice.

A head is what it makes of the vectors `x` that stand at the positions: queries x W_q + b_q, keys x W_k + b_k. The
factor sqrt(d) that attention divides by is put into the queries: a score is `strength` times what is written.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_positive
from ordinate.ops.rotate import Layout, join
from ordinate.ops.waves import frequencies
from ordinate.shapes import Queries, Tokens

Matrix = Float[Tensor, "width d"]
Vector = Float[Tensor, "d"]


@dataclass(frozen=True, eq=False)
class Head:
    """The weights of a head.

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
        """Queries and keys of these vectors, as attention takes them."""
        q, k = x @ self.query + self.query_bias, x @ self.key + self.key_bias
        return q[:, None], k[:, None]


def behind_sinusoidal(width: int, offset: int, strength: float, theta: float = 10_000.0) -> Head:
    """A head that looks `offset` places back, where sine and cosine of the position are added side by side.

        score(i, j) = strength * sum over m of cos w_m (i - j - offset)

    A rotation of each pair of columns moves the query's own code by so many places: a matrix that no position enters.

    Args:
        width: columns of the code, even.
        offset: how far back it looks; below 0 ahead [tokens].
        strength: how peaked it is.
        theta: base of the wavelengths.
    Source: Vaswani et al. 2017, section 3.5: PE(pos + k) is a linear function of PE(pos).
    """
    need(width % 2 == 0, "each sine needs its cosine", f"got width {width}", "choose an even width")
    rates = torch.tensor(frequencies(width, theta, "vaswani", "paper"), dtype=torch.float64)
    cos, sin = (offset * rates).cos(), (offset * rates).sin()
    # [sin a, cos a] -> [sin(a - b), cos(a - b)]
    blocks = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], 1)
    turned = torch.block_diag(*blocks.unbind())
    nothing, same = turned.new_zeros(width), torch.eye(width, dtype=torch.float64)
    return Head(turned * strength * math.sqrt(width), nothing, same, nothing)


def behind_learned(table: Float[Tensor, "places width"], offset: int, strength: float) -> Head:
    """A head that looks `offset` places back, where the rows of any table are added.

        score(i, j) = strength * [j = i - offset]

    The inverse of the table makes one column of each place, and the query's is moved. Nothing is found back where
    there is no such place: those queries look everywhere alike.

    Raises:
        ValueError: more places than columns, or rows that depend on each other: nothing linear tells those apart.
    """
    places, width = table.shape
    rank = int(torch.linalg.matrix_rank(table.double()))
    need(
        rank == places,
        "each place needs a row of its own that the others do not make",
        f"got {places} places of rank {rank} in {width} columns",
        "give fewer places, or a wider table",
    )
    back = torch.linalg.pinv(table.double())
    # column j of what the queries make is 1 in place j + offset
    moved = torch.zeros_like(back)
    moved[:, max(0, -offset) : places - max(0, offset)] = back[:, max(0, offset) : places - max(0, -offset)]
    nothing = back.new_zeros(places)
    return Head(moved * strength * math.sqrt(places), nothing, back, nothing)


def behind_rope(
    head_width: int,
    offset: int,
    strength: float,
    theta: float = 10_000.0,
    *,
    width: int = 1,
    layout: Layout = "half",
    pairs: int | None = None,
) -> Head:
    """A head that looks `offset` places back, where queries and keys are rotated.

        score(i, j) = strength * sum over m of cos w_m (i - j - offset)

    The same key everywhere, and the same query everywhere, turned back by so many places before rope turns both.

    Args:
        head_width: channels of the head.
        offset: how far back it looks; below 0 ahead [tokens].
        strength: how peaked it is.
        theta: base of the wavelengths.
        width: columns of what it reads, none of which matters.
        layout: which channels make a pair.
        pairs: how many it uses, the fastest; None: all.
    Source: Barbero et al. 2025, https://arxiv.org/abs/2410.06205, section 5: the fastest pairs make such heads.
    """
    rates = torch.tensor(frequencies(head_width, theta, "vaswani", "paper"), dtype=torch.float64)
    used = (torch.arange(len(rates)) < (len(rates) if pairs is None else pairs)).double()
    angle = offset * rates
    query = join(angle.cos() * used, -angle.sin() * used, layout) * strength * math.sqrt(head_width)
    nothing = query.new_zeros(width, head_width)
    return Head(nothing, query, nothing, join(used, torch.zeros_like(used), layout))


def first(table: Float[Tensor, "places width"], strength: float) -> Head:
    """A head that looks at the first token, wherever it stands itself: the query is the first row of the table.

        score(i, j) = strength * p_0 . p_j

    It works where the first row is nearer to itself than to the others: of sinusoids, and of rows of one length.
    Rope alone cannot do it: what it makes depends on i - j only, and must find something in the first token.
    """
    width = table.shape[1]
    nothing, same = table.new_zeros(width, width).double(), torch.eye(width, dtype=torch.float64)
    return Head(nothing, table[0].double() * strength * math.sqrt(width), same, nothing[0])


def slope_of(distance: float) -> float:
    """The slope of ALiBi by which a causal head looks so far back on average, the past being endless.

        sum over d of d e^(-m d) / sum over d of e^(-m d) = e^-m / (1 - e^-m),    m = ln(1 + 1 / distance)

    Args:
        distance: [tokens].
    """
    need_positive("distance", distance)
    return math.log1p(1 / distance)


def bias_behind(offset: int, strength: float, reach: int) -> Float[Tensor, "offsets"]:
    """A table of biases by i - j, from -reach to reach, that looks `offset` places back.

    Raises:
        ValueError: the table does not reach so far.
    """
    need(abs(offset) <= reach, "the table reaches the offset", f"got {offset} of {reach}", "give a larger reach")
    return strength * (torch.arange(-reach, reach + 1) == offset).double()


def bias_first(strength: float, reach: int) -> Float[Tensor, "offsets"]:
    """A table of biases by i - j, from -reach to reach, that looks as far back as it can: at the first token.

    What it grows by with each place; of a causal head 1 - e^-strength of the weight is then the first token's.
    """
    return strength * torch.arange(-reach, reach + 1, dtype=torch.float64)
