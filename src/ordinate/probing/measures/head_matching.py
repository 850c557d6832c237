"""Heads of two models matched by their attention patterns on the same texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.finding import Table
from ordinate.core.shapes import Ids
from ordinate.ops.stats.bootstrap import mean_intervals
from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.ops.stats.permutation_tests import exact_sign_flip_test
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing.activations.recording import record

# half of the texts choose the matches, the other half, at most 20, measures them
FEWEST_TEXTS, MOST_TEXTS = 8, 40


@dataclass(frozen=True, eq=False)
class HeadMatches:
    """Heads of one model, each with the head of another whose attention is most like it.

    Args:
        first: name of the first model.
        second: name of the second.
        pairs: (layer, head) in the first and in the second model.
        overlap: overlap of their attention, on texts that did not choose the match.
        low: lower end of the 95 % interval of the overlap.
        high: its upper end.
        null: mean overlap of the head of the first model with all other heads of the second.
        adjusted_p: p-value of overlap > null, adjusted over heads.
    """

    first: str
    second: str
    pairs: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    overlap: Float[ndarray, "pairs"]
    low: Float[ndarray, "pairs"]
    high: Float[ndarray, "pairs"]
    null: Float[ndarray, "pairs"]
    adjusted_p: Float[ndarray, "pairs"]

    @property
    def moved(self) -> int:
        """Number of heads whose match has another layer or index."""
        return sum(one != other for one, other in self.pairs)

    @property
    def rows(self) -> list[tuple[str | float, ...]]:
        """A row for each pair."""
        numbers = zip(self.overlap, self.low, self.high, self.null, self.adjusted_p, strict=True)
        return [
            (self.first, f"{one[0]}.{one[1]}", self.second, f"{other[0]}.{other[1]}", *map(float, own))
            for (one, other), own in zip(self.pairs, numbers, strict=True)
        ]


def match_heads(first: ModelAdapter, second: ModelAdapter, ids: Ids, *, seed: int = 0) -> HeadMatches:
    """Match the heads of two models that read the same tokens, one to one, by the overlap of their attention.

        overlap(a, b) = mean over queries of  sum over keys of  min(a_ij, b_ij)

    It is 1 for equal patterns. The best assignment of heads is chosen on half of the texts and measured on the other,
    so that the overlap of a match is not that of a lucky choice.

    Args:
        first: one model.
        second: the other.
        ids: texts of one length, 8 to 40.
        seed: seed of the bootstrap.

    Raises:
        ValueError: too few or many texts.
        NotApplicable: the attention of a model is not observable.
    Source: Kuhn 1955, The Hungarian method for the assignment problem, https://doi.org/10.1002/nav.3800020109.
    """
    holds = FEWEST_TEXTS <= len(ids) <= MOST_TEXTS
    need(holds, f"heads are matched on {FEWEST_TEXTS} to {MOST_TEXTS} texts", f"got {len(ids)}", "give 32")
    found = [record(model, ids, "pattern").layers("pattern").flatten(1, 2).float() for model in (first, second)]
    overlaps = torch.stack([_overlaps(*patterns) for patterns in zip(*found, strict=True)]).double().cpu().numpy()
    half = len(ids) // 2
    rows, columns = linear_sum_assignment(-overlaps[:half].mean(0))
    tested = overlaps[half:]
    own = tested[:, rows, columns]
    others = (tested[:, rows].sum(-1) - own) / max(1, tested.shape[2] - 1)
    _, low, high = mean_intervals(own, seed)
    p = benjamini_hochberg(exact_sign_flip_test(own - others))
    heads = first.info.heads, second.info.heads
    pairs = tuple(
        (divmod(int(row), heads[0]), divmod(int(column), heads[1])) for row, column in zip(rows, columns, strict=True)
    )
    return HeadMatches(first.info.name, second.info.name, pairs, own.mean(0), low, high, others.mean(0), p)


def matches_table(matches: Sequence[HeadMatches]) -> Table:
    """Return a table with a row for each pair of heads."""
    columns = ("model", "head", "other model", "matched head", "overlap", "from", "to", "other heads", "p")
    caption = (
        "Heads are LAYER.HEAD, from 0. Other heads: mean overlap with all others, the null. p: adjusted over heads."
    )
    rows = tuple(row for one in matches for row in one.rows)
    return Table(title="Matched heads", columns=columns, rows=rows, caption=caption)


def _overlaps(one: Float[Tensor, "heads n n"], other: Float[Tensor, "others n n"]) -> Float[Tensor, "heads others"]:
    return torch.stack([torch.minimum(head, other).sum(-1).mean(-1) for head in one])
