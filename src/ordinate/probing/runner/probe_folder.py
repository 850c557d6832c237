"""The folder of a probed model: subject.json with its inputs, and one JSON file for each finding."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.finding import Finding
from ordinate.core.folder_lock import LOCK, OWNER, exclusive_lock

# 2: findings have a grade; those of format 1 are shown, but measured again
FORMAT = 2


class OtherInputsError(ValueError):
    """The folder has findings about another model or text, or other files."""


@dataclass(frozen=True)
class ProbeFolder:
    """Paths in the folder.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def subject(self) -> Path:
        """The model and its input."""
        return self.path / "subject.json"

    def finding(self, question: str) -> Path:
        """The finding of a probe."""
        return self.path / "findings" / f"{question}.json"

    def failure(self, question: str) -> Path:
        """The traceback of a failed probe; removed when the probe succeeds."""
        return self.path / "findings" / f"{question}.failed.json"

    def load(self, question: str, options: dict[str, Any]) -> Finding | None:
        """Return the finding with these options; None if there is none, or if it cannot be read."""
        try:
            written = read_checksummed(self.finding(question))
            finding = Finding.model_validate(written["finding"])
            same = (finding.question, written["options"], written["format"]) == (question, options, FORMAT)
            return finding if same else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def describe_damage(self, question: str) -> str:
        """Say what is wrong with the file of a finding; empty if there is none, or nothing is wrong."""
        try:
            read_checksummed(self.finding(question), "it is measured again")
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    def save(self, question: str, options: dict[str, Any], finding: Finding) -> None:
        """Write a finding with its checksum, and delete the traceback of an earlier failure."""
        content = finding.model_dump(mode="json")
        write_checksummed(self.finding(question), {"format": FORMAT, "options": options, "finding": content})
        self.failure(question).unlink(missing_ok=True)

    def save_failure(self, question: str, title: str, message: str) -> None:
        """Write the traceback of a failed probe."""
        write_checksummed(self.failure(question), {"format": FORMAT, "title": title, "message": message})

    def open(self, asked: dict[str, Any], about: dict[str, Any]) -> None:
        """Write subject.json, or check that an existing one has the same model and text.

        Args:
            asked: the inputs that determine the findings: model, text, sizes and seed.
            about: further information for the report.

        Raises:
            OtherInputsError: the folder has findings with other inputs; each difference is named.
        """
        old = self._read()
        if old is not None and old != asked:
            names = [name for name in {**old, **asked} if old.get(name) != asked.get(name)]
            lines = "\n  ".join(f"{name}: {old.get(name)!r} -> {asked.get(name)!r}" for name in names)
            raise OtherInputsError(
                f"the findings of one folder must have the same inputs; {self.path} has others:\n  {lines}\n"
                "give the same inputs, or another --out"
            )
        (self.path / "findings").mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "asked": asked, "about": about, "versions": {"ordinate": __version__}}
        write_checksummed(self.subject, content)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder, as its only writer.

        Raises:
            OtherInputsError: the folder has other files.
            FolderLockedError: another process holds the lock.
        """
        foreign = (
            self.path.exists()
            and not self.subject.exists()
            and {*self.path.iterdir()} - {self.path / LOCK, self.path / OWNER}
        )
        if foreign:
            raise OtherInputsError(
                f"findings need an empty folder or one with findings; {self.path} has other files; give another --out"
            )
        with exclusive_lock(self.path):
            yield

    def _read(self) -> dict[str, Any] | None:
        if not self.subject.exists():
            return None
        try:
            return dict(read_checksummed(self.subject)["asked"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OtherInputsError(
                f"subject.json must be readable; {self.subject} cannot be read ({error}); give another --out"
            ) from None
