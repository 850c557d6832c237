"""The folder of a questioned model: who it is, what it read, and what was found."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.files import write_json
from ordinate.finding import Finding
from ordinate.lock import LOCK, OWNER, only_writer

FORMAT = 1


class OtherModelError(ValueError):
    """The folder holds findings about another model or text, or something else."""


@dataclass(frozen=True)
class Folder:
    """Paths in the folder.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def subject(self) -> Path:
        """Who is questioned, and what it reads."""
        return self.path / "subject.json"

    def finding(self, question: str) -> Path:
        """What was found."""
        return self.path / "findings" / f"{question}.json"

    def failure(self, question: str) -> Path:
        """Why a question could not be answered; gone when it has been."""
        return self.path / "findings" / f"{question}.failed.json"

    def found(self, question: str, options: dict[str, Any]) -> Finding | None:
        """What was found with these options; None where it is still to be asked, or cannot be read."""
        try:
            written = json.loads(self.finding(question).read_text(encoding="utf-8"))
            same = written["options"] == options and written["format"] == FORMAT
            return Finding.model_validate(written["finding"]) if same else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, question: str, options: dict[str, Any], finding: Finding) -> None:
        """Write down what was found."""
        content = finding.model_dump(mode="json")
        write_json(self.finding(question), {"format": FORMAT, "options": options, "finding": content})
        self.failure(question).unlink(missing_ok=True)

    def keep_failure(self, question: str, title: str, message: str) -> None:
        """Write down that a question failed."""
        write_json(self.failure(question), {"format": FORMAT, "title": title, "message": message})

    def open(self, asked: dict[str, Any], about: dict[str, Any]) -> None:
        """Write subject.json, or make sure that the one there is of the same model and text.

        Args:
            asked: what decides the findings: the model, the text, the sizes and the seed.
            about: what else is known, for the report.

        Raises:
            OtherModelError: the folder holds others; each difference is named.
        """
        old = self._read()
        if old is not None and old != asked:
            names = [name for name in {**old, **asked} if old.get(name) != asked.get(name)]
            lines = "\n  ".join(f"{name}: {old.get(name)!r} -> {asked.get(name)!r}" for name in names)
            raise OtherModelError(
                f"findings go on with what they began with; {self.path} was begun with other inputs:\n  {lines}\n"
                "give the same as then, or another --out"
            )
        (self.path / "findings").mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "asked": asked, "about": about, "versions": {"ordinate": __version__}}
        write_json(self.subject, content)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only one who writes here.

        Raises:
            OtherModelError: the folder is of something else.
            OccupiedError: somebody else does.
        """
        foreign = (
            self.path.exists()
            and not self.subject.exists()
            and {*self.path.iterdir()} - {self.path / LOCK, self.path / OWNER}
        )
        if foreign:
            raise OtherModelError(
                f"findings need an empty folder or their own; {self.path} holds other files; give another --out"
            )
        with only_writer(self.path):
            yield

    def _read(self) -> dict[str, Any] | None:
        if not self.subject.exists():
            return None
        try:
            return dict(json.loads(self.subject.read_text(encoding="utf-8"))["asked"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OtherModelError(
                f"subject.json must say what is questioned; {self.subject} cannot be read ({error}); "
                "give another --out"
            ) from None
