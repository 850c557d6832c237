"""The tuning split: the tenth of the training data on which learning rates are compared."""

from typing import Any

from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.study.plan import Plan

FRACTION = 10


def split_tokens(tokens: NDArray[Any], plan: Plan, *, tuning: bool) -> NDArray[Any]:
    """Return the last tenth of the training tokens (the tuning split), or the rest.

    Without learning-rate tuning nothing is split off: the rest is the whole text.
    """
    cut = len(tokens) - len(tokens) // FRACTION if plan.tune_lr else len(tokens)
    return tokens[cut:] if tuning else tokens[:cut]


def need_examples(count: int, kind: str, source: str) -> None:
    """Check that the tuning split has an example.

    Args:
        count: number of training examples.
        kind: what they are, in the plural.
        source: where they are from.

    Raises:
        ValueError: there are fewer than ten.
    """
    need(
        count >= FRACTION,
        f"the training split must have at least {FRACTION} {kind}, of which every tenth tunes learning rates",
        f"that of {source} has {count}",
        f"give more {kind}, or one learning rate without --tune-lr",
    )


def split_indices(count: int, *, tuning: bool) -> list[int]:
    """Return the indices of every tenth example (the tuning split), or of all others."""
    return [place for place in range(count) if (place % FRACTION == FRACTION - 1) == tuning]
