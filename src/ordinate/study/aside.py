"""What is set aside of the data learned from, where learning rates are tuned: one part in ten."""

from typing import Any

from numpy.typing import NDArray

from ordinate.study.plan import Plan

PARTS = 10


def part(tokens: NDArray[Any], plan: Plan, *, aside: bool) -> NDArray[Any]:
    """The end of a text, or all before it; of a study that does not tune, nothing is set aside."""
    cut = len(tokens) - len(tokens) // PARTS if plan.tune else len(tokens)
    return tokens[cut:] if aside else tokens[:cut]


def places(count: int, *, aside: bool) -> list[int]:
    """Every tenth of so many, or the others."""
    return [place for place in range(count) if (place % PARTS == PARTS - 1) == aside]
