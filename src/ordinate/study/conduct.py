"""A study from its plan to its runs: check everything, read the text, do what is missing."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from ordinate import catalog
from ordinate.checks import need
from ordinate.data.find import find
from ordinate.data.store import TokenStore, prepare
from ordinate.data.windows import segments
from ordinate.study.engine import News, carry_out
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.tokenizer import make_tokenizer


@runtime_checkable
class Watcher(Protocol):
    """Somebody who wants to know how far a study is."""

    def reading(self, name: str) -> None:
        """The text is being cut into tokens."""

    def planned(self, plan: Plan, todo: int) -> None:
        """So many runs are to do."""

    def news(self, news: News) -> None:
        """A run has got further."""


def conduct(plan: Plan, out: Path, workers: int, command: str, watcher: Watcher) -> Folder:
    """Carry out what is missing of a settled plan in the folder `out`.

    Args:
        plan: what to do, settled.
        out: the study's folder; new, empty, or of the same plan.
        workers: runs at a time.
        command: how the study was asked for, kept for the report.
        watcher: is told how far it is.

    Raises:
        OtherStudyError: the folder holds another study, or somebody is at work in it.
        ValueError: a text that is empty, unreadable, or shorter than one window.
    """
    from ordinate.study.source import TEXT, open_source

    need(workers > 0, "workers must be above zero", f"got {workers}", "give how many runs to do at a time")
    folder = Folder(out)
    folder.check(plan)
    with folder.lock():
        folder.check(plan)
        if plan.task == TEXT:
            watcher.reading(plan.text)
            _check_text(prepare(find(plan.text), folder.data, make_tokenizer(*catalog.parse(plan.tokenizer))), plan)
        folder.open(plan, open_source(folder.data, plan).identity, command)
        todo = folder.missing(plan)
        watcher.planned(plan, len(todo))
        carry_out(folder, plan, todo, workers, watcher.news)
    return folder


def _check_text(store: TokenStore, plan: Plan) -> None:
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
