"""Kinds of attention heads over training: which appear, and between which checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.checks import need
from ordinate.core.finding import Estimate, Grade, Table
from ordinate.ops.stats.bootstrap import mean_intervals
from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.ops.stats.permutation_tests import exact_sign_flip_test
from ordinate.probing.measures.grading import ORDER
from ordinate.probing.measures.head_kinds import RATE, STRONG, WEAK, HeadKinds

Rises = Float[ndarray, "kinds steps layers h"]


class Appearance(NamedTuple):
    """A head that becomes one of a kind.

    Args:
        layer: its layer, from 0.
        head: its head, from 0.
        name: the kind; of offsets that of the offset: previous token, 7 back.
        before: step of the last checkpoint at which it is not one.
        at: step of the first checkpoint at which it is one.
        rise: attention above the null at that checkpoint, minus that of the first checkpoint.
        p: p-value of the rise, adjusted over heads, kinds and checkpoints.
    """

    layer: int
    head: int
    name: str
    before: int
    at: int
    rise: Estimate
    p: float


@dataclass(frozen=True)
class KindOverSteps:
    """Heads of one kind in the checkpoints of a run.

    Args:
        kind: offset, first token, induction or duplicate token.
        grade: whether a head becomes one of the kind after the first checkpoint.
        appeared: the heads that do, the earliest first.
        counts: number of heads of the kind at each checkpoint.
        steps: optimiser steps of the checkpoints.
    """

    kind: str
    grade: Grade
    appeared: tuple[Appearance, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def answer(self) -> str:
        """The answer in one or two sentences, which do not repeat the grade."""
        held = f"{self.counts[-1]} at step {self.steps[-1]:,}, {self.counts[0]} at step {self.steps[0]:,}"
        if not self.appeared:
            return f"{self.kind.capitalize()} heads: {held}."
        one = self.appeared[0]
        value, low, high = one.rise.formatted
        where = f"between steps {one.before:,} and {one.at:,}"
        effect = f"attention above the null rises by {value} [{low}, {high}], corrected p {one.p:.2g}"
        kind = "" if one.name == self.kind else f", {one.name}"
        return (
            f"{self.kind.capitalize()} heads: the first, {one.layer}.{one.head}{kind}, appears {where}: {effect}. "
            f"There are {held}."
        )


def kinds_over_steps(kinds: Sequence[HeadKinds], steps: Sequence[int], *, seed: int = 0) -> list[KindOverSteps]:
    """Tell which heads become heads of a kind during training, and when.

    A head becomes one of a kind at the first checkpoint that finds it of that kind, yes or weakly, with attention
    above the null that has risen since the first checkpoint:

        yes              the rise is significant, and at least 0.5 of the attention
        weakly           significant, and at least 0.1
        no               the 95 % interval of the rise excludes 0.1
        cannot be told   otherwise

    All checkpoints read the same texts, so that rises are paired by text: exact sign-flip tests, adjusted over heads,
    kinds and checkpoints by Benjamini and Hochberg; bootstrap intervals over texts. A kind has the first of these
    grades that one of its heads has.

    Args:
        kinds: the kinds of heads at each checkpoint, measured with one seed.
        steps: optimiser steps of the checkpoints, increasing.
        seed: seed of the bootstrap.

    Raises:
        ValueError: fewer than two checkpoints, steps that do not increase, or checkpoints of different models.
    """
    need(len(kinds) > 1, "changes over training need two checkpoints", f"got {len(kinds)}", "give another")
    rising = all(a < b for a, b in pairwise(steps))
    need(
        rising and len(steps) == len(kinds),
        "each checkpoint has a later step than the one before",
        f"got steps {list(steps)} for {len(kinds)} checkpoints",
        "sort them",
    )
    sizes = {(one.offset.shape, one.texts, one.tokens) for one in kinds}
    need(len(sizes) == 1, "checkpoints must be of one model", f"got {len(sizes)} sizes", "compare one run")
    excess = np.stack([np.stack([kind.excess for kind in one.kinds], 1) for one in kinds], 2)
    rise = excess[:, :, 1:] - excess[:, :, :1]
    p = benjamini_hochberg(exact_sign_flip_test(rise))
    mean, low, high = mean_intervals(rise, seed)
    grades = _grades(mean, high, p, kinds)
    return [
        KindOverSteps(
            kind.name,
            next(one for one in ORDER if (grades[place] == one).any()),
            tuple(sorted(_appeared(place, grades, (mean, low, high, p), kinds, steps), key=lambda one: one.at)),
            tuple(_count(one, place) for one in kinds),
            tuple(steps),
        )
        for place, kind in enumerate(kinds[0].kinds)
    ]


def over_steps_table(found: Sequence[KindOverSteps]) -> Table:
    """Return a table with a row for each head that becomes one of a kind."""
    rows = [
        (own.kind, f"{one.layer}.{one.head}", one.name, one.before, one.at, one.rise.value, one.rise.low,
         one.rise.high, one.p)
        for own in found
        for one in own.appeared
    ]  # fmt: skip
    columns = ("kind", "head", "name", "not at step", "at step", "rise", "from", "to", "p corrected")
    caption = "Rise: attention above the null, minus that at the first checkpoint. p: over heads, kinds, checkpoints."
    return Table(title="Heads that appear", columns=columns, rows=tuple(rows), caption=caption)


def _grades(mean: Rises, high: Rises, p: Rises, kinds: Sequence[HeadKinds]) -> ndarray:
    """Return the grade of each rise."""
    of_kind = np.zeros(mean.shape, bool)
    for place, step, layer, head in np.ndindex(*mean.shape):
        of_kind[place, step, layer, head] = kinds[step + 1].kinds[place].verdict(layer, head) in ("yes", "weakly")
    there = (p <= RATE) & of_kind & (mean >= WEAK)
    return np.select([there & (mean >= STRONG), there, high < WEAK], ["yes", "weakly", "no"], "cannot be told")


def _appeared(
    place: int, grades: ndarray, numbers: tuple[Rises, ...], kinds: Sequence[HeadKinds], steps: Sequence[int]
) -> list[Appearance]:
    found = []
    for layer, head in np.ndindex(*kinds[0].offset.shape):
        own = grades[place, :, layer, head]
        at = next((step for step, grade in enumerate(own) if grade in ("yes", "weakly")), None)
        if at is None:
            continue
        # an unclear checkpoint may already have it
        before = max([step + 1 for step in range(at) if own[step] == "no"], default=0)
        value, low, high, p = (float(part[place, at, layer, head]) for part in numbers)
        rise = Estimate(name=f"rise of head {layer}.{head}", value=value, low=low, high=high, null=0.0)
        kind = kinds[at + 1]
        name = kind.kind_name(kind.kinds[place], layer, head)
        found.append(Appearance(layer, head, name, steps[before], steps[at + 1], rise, p))
    return found


def _count(kinds: HeadKinds, place: int) -> int:
    return sum(kinds.kinds[place].verdict(*at) in ("yes", "weakly") for at in np.ndindex(*kinds.offset.shape))
