"""Agreement of two studies on the ranking of the models that both compare: Kendall's tau, and their decided pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from ordinate.core.checks import need
from ordinate.evaluation.comparison import Measurements, compare_all
from ordinate.evaluation.statistics import Interval


@dataclass(frozen=True)
class RankAgreement:
    """How far two studies agree on the ranking of the models that both compare.

    A pair of models is decided in a study if their difference is significant, after correction for all pairs of both
    studies. With one seed that is about these trained models, with several about their recipes.

    Args:
        models: number of models that both compare.
        concordant: number of pairs that both studies order in the same way, by their values.
        discordant: number of pairs that they order in opposite ways; pairs with equal values are neither.
        confirmed: number of pairs decided in both in the same way.
        contradicted: number of pairs decided in both in opposite ways.
        decided: number of pairs decided in the first.
        decided_other: number of pairs decided in the second.
    """

    models: int
    concordant: int
    discordant: int
    confirmed: int
    contradicted: int
    decided: int
    decided_other: int

    @property
    def pairs(self) -> int:
        """Number of pairs of models."""
        return self.models * (self.models - 1) // 2

    @property
    def tau(self) -> float:
        """Kendall's tau-a: (concordant - discordant) / pairs; 1 for equal rankings, -1 for opposite ones.

        Source: Kendall 1938, https://doi.org/10.1093/biomet/30.1-2.81.
        """
        return (self.concordant - self.discordant) / self.pairs

    @property
    def interval(self) -> Interval:
        """Interval of tau with a confidence of at least 95 %: pairs that a study leaves undecided may be either way.

        With a probability of at least 95 % every decided pair is decided rightly in both studies, so the true
        rankings agree in all confirmed pairs and disagree in all contradicted ones. That covers the sampling of
        documents, and of seeds if there are several; the models are fixed.
        """
        return 2 * self.confirmed / self.pairs - 1, 1 - 2 * self.contradicted / self.pairs


def rank_agreement(
    one: Mapping[str, Measurements], other: Mapping[str, Measurements], signs: tuple[int, int] = (1, 1)
) -> RankAgreement:
    """Compare the rankings of the models that two studies have in common.

    Args:
        one: measurements of the first study, by model.
        other: those of the second, on its own documents.
        signs: for each study 1 if lower values are better, -1 if higher ones are.

    Raises:
        ValueError: fewer than two models in common.
    """
    common = [label for label in one if label in other]
    need(
        len(common) > 1,
        "rankings need two models in common",
        f"got {', '.join(one) or 'none'} and {', '.join(other) or 'none'}",
        "compare studies of the same schemes or mixers",
    )
    pairs = list(combinations(common, 2))
    found = compare_all([{label: tables[label] for label in common} for tables in (one, other)])
    ways = [
        [
            (sign * group[pair].difference, group[pair].significant) if pair in group else (0.0, False)
            for pair in pairs
        ]
        for group, sign in zip(found, signs, strict=True)
    ]
    both = [(first * second, sure and also) for (first, sure), (second, also) in zip(*ways, strict=True)]
    return RankAgreement(
        models=len(common),
        concordant=sum(product > 0 for product, _ in both),
        discordant=sum(product < 0 for product, _ in both),
        confirmed=sum(sure and product > 0 for product, sure in both),
        contradicted=sum(sure and product < 0 for product, sure in both),
        decided=sum(sure for _, sure in ways[0]),
        decided_other=sum(sure for _, sure in ways[1]),
    )
