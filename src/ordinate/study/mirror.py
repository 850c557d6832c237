"""A study's folder and its copy at a URL: what one machine has begun, another goes on with."""

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ordinate.lock import LOCK, OWNER
from ordinate.study.engine import News
from ordinate.study.state import STATES

# how often something is tried, and how long is waited after the first time, then twice as long [seconds]
TRIES, WAIT = 5, 1.0
# what a reader trusts is copied after all that it speaks for
LAST = ("manifest.json", "result.json")
# what belongs to one machine only
OWN = (LOCK, OWNER, "logs")
# of a copy that is not here
ABSENT = (-1, -1)


def remote(out: str) -> bool:
    """Whether this names a place elsewhere: s3://bucket/study."""
    return "://" in out


def workplace(url: str) -> Path:
    """The folder on this machine in which a study at a URL is worked on."""
    name = url.rstrip("/").rpartition("/")[2] or urlsplit(url).scheme
    return Path("runs") / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"


class Mirror:
    """A folder here that is worked in, and its copy at a URL.

    Files are copied there at these moments: the plan and what is learned from before any run begins; the losses and
    checkpoints of a run after each new checkpoint; all of a run when it ends, its result last. A copy that was torn
    is found out as a torn file is. What fails is tried again.

    Args:
        url: where the copy is, in any form that fsspec knows: s3://, gs://, file://.
        folder: where the study is worked in; by default one in runs/ named after the URL.
    """

    def __init__(self, url: str, folder: Path | None = None) -> None:
        import fsspec

        self.url, self.folder = url.rstrip("/"), folder or workplace(url)
        try:
            self.files, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ValueError(f"--out is a folder or a URL that fsspec reads; got {url}; {error}") from None
        self.root = str(root).rstrip("/")
        # size and time of each file here when it was last copied
        self.known: dict[str, tuple[int, int]] = {}

    def fetch(self, run: str | None = None) -> None:
        """Bring here what is not here yet, and the runs that are further there.

        Args:
            run: the only run to look at; None: all, and what belongs to the study.
        Raises:
            OSError: the URL cannot be read, tried several times.
        """
        # where nothing of the study is yet, a run needs what belongs to the study, too
        under = "" if run is None or not any(self.folder.glob("study.json")) else f"runs/{run}"
        there = self._try("read", under, lambda: self._listed(under))
        runs: dict[str, dict[str, int]] = {}
        for name, size in there.items():
            if name.startswith("runs/"):
                runs.setdefault(name.split("/")[1], {})[name] = size
            elif not (self.folder / name).exists():
                self._get(name, self.folder / name)
        for one, names in runs.items():
            if run in (None, one) and _progress(names) > _progress(dict(self._here(f"runs/{one}"))):
                self._replace(one, names)
        for name, size in there.items():
            here = self.folder / name
            same = here.exists() and here.stat().st_size == size
            self.known[name] = _mark(here) if same else ABSENT

    def push(self, run: str | None = None) -> None:
        """Bring there what has changed here, and delete there what is gone here.

        Args:
            run: the only run to look at; None: all, and what belongs to the study.
        Raises:
            OSError: the URL cannot be written, tried several times.
        """
        under = "" if run is None else f"runs/{run}"
        here = dict(self._here(under))
        for name in sorted(here, key=_rank):
            if not here[name].exists():
                # an old checkpoint that has just been deleted
                continue
            mark = _mark(here[name])
            if self.known.get(name) != mark:
                self._put(here[name], name)
                self.known[name] = mark
        for name in [name for name in self.known if name.startswith(under and f"{under}/") and name not in here]:
            self._try("delete", name, lambda name=name: self.files.exists(self._at(name)) and self._remove(name))
            del self.known[name]

    def news(self, news: News, every: int) -> None:
        """Copy a run at the moments when that is worth it.

        Args:
            news: how far it is.
            every: steps between checkpoints; one is written after its step is told of.
        """
        saved = news.step > 1 and (news.step - 1) % every == 0
        if saved or news.stage in (*STATES, "measuring", "waiting"):
            self.push(news.run.name)

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _here(self, under: str) -> Iterable[tuple[str, Path]]:
        for path in (self.folder / under).rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") or part in OWN for part in parts):
                yield "/".join(parts), path

    def _listed(self, under: str = "") -> dict[str, int]:
        self.files.invalidate_cache()
        if not self.files.exists(self._at(under)):
            return {}
        found = self.files.find(self._at(under), detail=True)
        names = {path.removeprefix(self.root).lstrip("/"): int(about["size"] or 0) for path, about in found.items()}
        return {name: size for name, size in names.items() if not name.startswith(".")}

    def _replace(self, run: str, names: Iterable[str]) -> None:
        """A run as it is there, whole or not at all."""
        place = self.folder / "runs" / run
        beside = place.with_name(f".fetched-{run}")
        shutil.rmtree(beside, ignore_errors=True)
        for name in names:
            self._get(name, beside / name.removeprefix(f"runs/{run}/"))
        shutil.rmtree(place, ignore_errors=True)
        beside.replace(place)

    def _get(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".fetched-{target.name}")
        self._try("read", name, lambda: self.files.get_file(self._at(name), str(beside)))
        beside.replace(target)

    def _put(self, source: Path, name: str) -> None:
        def put() -> None:
            self.files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(source), self._at(name))

        self._try("write", name, put)

    def _remove(self, name: str) -> None:
        self.files.rm_file(self._at(name))

    def _try(self, what: str, name: str, work: Callable[[], Any]) -> Any:
        # the file systems of fsspec raise errors of their own
        for turn in range(TRIES - 1):
            try:
                return work()
            except Exception:
                time.sleep(WAIT * 2**turn)
        try:
            return work()
        except Exception as error:
            raise OSError(
                f"cannot {what} {self.url}/{name} ({type(error).__name__}: {error}), tried {TRIES} times; what was "
                f"done is in {self.folder}; run the same command again once it can be reached"
            ) from error


def _mark(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _rank(name: str) -> tuple[int, str]:
    """The order in which files are copied: what speaks for others comes last, a result after all."""
    file = name.rpartition("/")[2]
    return (LAST.index(file) + 1 if file in LAST else 0), name


def _progress(names: Iterable[str]) -> tuple[int, bool]:
    """How far a run with these files is: its newest checkpoint, and whether it has a result."""
    steps = [int(found[1]) for name in names if (found := re.search(r"/step-(\d+)/manifest\.json$", name))]
    return max(steps, default=-1), any(name.endswith("/result.json") for name in names)
