"""Tokenise the text of a study into its data folder."""

from pathlib import Path

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.heldout_segments import segments
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.data.token_store import TokenStore, prepare_tokens
from ordinate.data.tokenizer import make_tokenizer
from ordinate.study.initial_model import base_tokenizer
from ordinate.study.plan import Plan
from ordinate.study.tuning_split import split_tokens

# vocabulary size assumed for shape checks before a tokenizer is fitted
BYTE_VOCABULARY = 256


def prepare_text(plan: Plan, data: Path, on_progress: OnProgress, *, bytes_known: bool) -> TokenStore:
    """Tokenise the plan's text, unless the data folder already has it.

    Args:
        plan: the study's plan.
        data: folder of the prepared data.
        on_progress: receives, as message, which text is about to be read (stage reading).
        bytes_known: whether the evaluation needs the bytes of every token, as bits per byte do.

    Raises:
        ValueError: the text is empty, unreadable, or shorter than one training sequence.
    """
    on_progress(Progress(stage="reading", message=f"reading the text: {plan.text}"))
    corpus = resolve_corpus(plan.text, plan.encoding)
    if plan.base is None:
        store = prepare_tokens(corpus, data, make_tokenizer(*catalog.parse(plan.tokenizer)))
    else:
        store = prepare_tokens(corpus, data, base_tokenizer(plan), fitted=True)
    if left_out := store.manifest.get("left_out"):
        on_progress(Progress(stage="reading", message=f"left out of the text: {left_out}"))
    need(
        len(store.train) > plan.length,
        f"the training text must have at least {plan.length + 1} tokens",
        f"{plan.text} has {len(store.train)}",
        "give more text, or a smaller --length",
    )
    aside = len(split_tokens(store.train, plan, tuning=True)) if plan.tune_lr else plan.length + 1
    need(
        aside > plan.length,
        f"the tenth of the training text that tunes learning rates must have at least {plan.length + 1} tokens",
        f"that of {plan.text} has {aside}",
        "give more text, or a smaller --length",
    )
    need(
        bool(segments(store, min(plan.eval_length_multiples) * plan.length, 1, bytes_known=bytes_known)),
        f"some held-out document must have at least {min(plan.eval_length_multiples) * plan.length + 1} tokens in a "
        f"row{', without the unknown token' if bytes_known and store.tokenizer.unknown_token is not None else ''}",
        f"no document of {plan.text} does",
        "give more or longer files, or a smaller --length",
    )
    if only := _only_document(store, plan, bytes_known):
        on_progress(Progress(stage="reading", message=only))
    return store


def _only_document(store: TokenStore, plan: Plan, bytes_known: bool) -> str:
    """Say that the evaluation has a single document, on which no interval can be based; empty if it has more."""
    lengths = [times * plan.length for times in sorted(plan.eval_length_multiples, reverse=True)]
    cut = ((length, segments(store, length, 2, bytes_known=bytes_known)) for length in lengths)
    length, found = next((length, found) for length, found in cut if found)
    if len({segment.name for segment in found}) > 1:
        return ""
    return (
        f"only one held-out document, {found[0].name}, has {length + 1} tokens: no interval and no winner can be "
        "given; give more files, or smaller --length or --eval-length-multiples"
    )
