"""The text of a study as tokens in its data folder."""

from collections.abc import Callable
from pathlib import Path

from ordinate import catalog
from ordinate.checks import need
from ordinate.data.find import find
from ordinate.data.store import TokenStore, prepare
from ordinate.data.windows import segments
from ordinate.study.beginning import base_tokenizer
from ordinate.study.plan import Plan
from ordinate.tokenizer import make_tokenizer

# how many tokens there are where nothing is known yet of a tokenizer: shapes are tried with as many
BYTES = 256


def prepare_text(plan: Plan, data: Path, tell: Callable[[str], None]) -> TokenStore:
    """Cut the text of a plan into tokens, unless they are there already.

    Raises:
        ValueError: a text that is empty, unreadable, or shorter than one window.
    """
    tell(f"the text: {plan.text}")
    if plan.base is None:
        store = prepare(find(plan.text), data, make_tokenizer(*catalog.parse(plan.tokenizer)))
    else:
        store = prepare(find(plan.text), data, base_tokenizer(plan), fitted=True)
    need(
        len(store.train) > plan.length,
        f"the text to train on must hold at least {plan.length + 1} tokens",
        f"{plan.text} holds {len(store.train)}",
        "give more text, or a smaller --length",
    )
    need(
        bool(segments(store, min(plan.multiples) * plan.length, 1)),
        f"some held-out document must hold at least {min(plan.multiples) * plan.length + 1} tokens",
        f"none of {plan.text} does",
        "give more or longer files, or a smaller --length",
    )
    return store
