"""Grading: one answer from several estimates, with a correction for their number."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Estimate, Grade
from ordinate.ops.stats.bootstrap import LEVEL
from ordinate.probing.measures.formatting import mean_estimate

# the grade of several estimates is the first of these that one of them has
ORDER: tuple[Grade, ...] = ("yes", "weakly", "cannot be told", "no")


def corrected_level(tests: int) -> float:
    """Confidence level of each of several intervals at which 95 % of repetitions have no wrong one (Bonferroni)."""
    return 1 - (1 - LEVEL) / tests


@dataclass(frozen=True)
class Evidence:
    """An estimate that a grade may rest on.

    Args:
        estimate: the estimate, with its 95 % interval.
        corrected: the same with an interval at the corrected level, which decides.
        size: smallest effect that matters, above the null.
    """

    estimate: Estimate
    corrected: Estimate
    size: float

    @property
    def grade(self) -> Grade:
        """The grade of this estimate by itself."""
        return self.corrected.graded((self.corrected.null or 0.0) + self.size)

    @property
    def strength(self) -> float:
        """Effect in units of the smallest one that matters."""
        return (self.estimate.value - (self.estimate.null or 0.0)) / self.size


def mean_evidence(
    name: str,
    values: Float[ndarray, "texts"],
    seed: int,
    unit: str,
    *,
    null: float,
    tests: int,
    size: float,
) -> Evidence:
    """Mean over texts as evidence, one of several tests.

    Args:
        name: name of the estimate.
        values: one number for each text.
        seed: of the bootstrap.
        unit: unit of the numbers.
        null: expected value without effect.
        tests: number of tests that the grade rests on.
        size: smallest effect that matters, above the null.
    """
    own, corrected = (
        mean_estimate(name, values, seed, unit, null, level) for level in (LEVEL, corrected_level(tests))
    )
    return Evidence(own, corrected, size)


def decide(evidence: Sequence[Evidence]) -> tuple[Grade, Estimate]:
    """Return the grade of several estimates, any of which may show the effect, and the strongest that has it."""
    grades = {one.grade for one in evidence}
    grade = next(one for one in ORDER if one in grades)
    return grade, max((one for one in evidence if one.grade == grade), key=lambda one: one.strength).estimate
