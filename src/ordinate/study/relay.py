"""Whoever else is told how far a study is: its copy at a URL, and the logs of other tools."""

from ordinate.study.conduct import Watcher
from ordinate.study.engine import News
from ordinate.study.logs import Logs
from ordinate.study.mirror import Mirror
from ordinate.study.plan import Plan


class Relay:
    """Passes news on to a person when what belongs to them has been done.

    Args:
        watcher: shows them to a person.
        mirror: the study's copy; None: there is none.
        logs: for other tools; None: there are none.
    """

    def __init__(self, watcher: Watcher, mirror: Mirror | None = None, logs: Logs | None = None) -> None:
        self.watcher, self.mirror, self.logs = watcher, mirror, logs

    def reading(self, what: str) -> None:
        """Something is being read."""
        self.watcher.reading(what)

    def planned(self, plan: Plan, todo: int) -> None:
        """Everything is known that runs need: it is copied before any of them begins."""
        self.every = plan.checkpoint_every
        if self.mirror:
            self.mirror.push()
        self.watcher.planned(plan, todo)

    def news(self, news: News) -> None:
        """A run has got further."""
        if self.mirror:
            self.mirror.news(news, self.every)
        if self.logs:
            self.logs.news(news)
        self.watcher.news(news)
