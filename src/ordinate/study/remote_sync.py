"""Remote copy of a study at a URL (object storage), so that any machine can resume it."""

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ordinate.core.folder_lock import LOCK, OWNER
from ordinate.core.output_folder import check_output_folder
from ordinate.core.progress import OnProgress, Progress
from ordinate.study.run import STATES

# attempts of a file operation, and the delay after the first, doubled each time [seconds]
MAX_ATTEMPTS, FIRST_DELAY = 5, 1.0
# files that vouch for others are uploaded after them: a manifest after its tensors, a result last
UPLOADED_LAST = ("manifest.json", "result.json")
# files that belong to one machine only
LOCAL_ONLY = (LOCK, OWNER, "logs")
# mark of a file whose local copy is missing or differs
ABSENT = (-1, -1)


def is_url(out: str) -> bool:
    """Whether an --out value is a URL: s3://bucket/study."""
    return "://" in out


def local_folder(url: str) -> Path:
    """Local working folder for a study at a URL."""
    name = url.rstrip("/").rpartition("/")[2] or urlsplit(url).scheme
    return Path("runs") / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"


class RemoteCopy:
    """Synchronises a local working folder with its copy at a URL.

    Uploads happen at these moments: plan and data before any run starts; losses and checkpoints of a run after each
    new checkpoint; all of a run when it ends, its result last. An incomplete upload is detected by checksums, as a
    torn local file is. Failed operations are retried.

    Args:
        url: URL of the copy, in any form that fsspec supports: s3://, gs://, file://.
        folder: local working folder; by default one in runs/ named after the URL.
    """

    def __init__(self, url: str, folder: Path | None = None) -> None:
        import fsspec

        self.url, self.folder = url.rstrip("/"), folder or local_folder(url)
        try:
            self.files, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ValueError(f"--out must be a folder or a URL that fsspec supports; got {url}; {error}") from None
        self.root = str(root).rstrip("/")
        # size and modification time of each local file when it was last synchronised
        self.known: dict[str, tuple[int, int]] = {}

    def fetch(self, run: str | None = None) -> None:
        """Download what is missing locally, and runs whose remote copy is further.

        Args:
            run: the only run to download; None: all, and the study's own files.
        Raises:
            OSError: the URL cannot be read, after several attempts.
        """
        # without a local study.json a run needs the study's own files too
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
        """Upload what has changed locally, and delete remotely what was deleted locally.

        Args:
            run: the only run to upload; None: all, and the study's own files.
        Raises:
            OSError: the URL cannot be written, after several attempts.
        """
        under = "" if run is None else f"runs/{run}"
        here = dict(self._here(under))
        for name in sorted(here, key=_rank):
            if not here[name].exists():
                # an old checkpoint, deleted by the worker since the listing
                continue
            mark = _mark(here[name])
            if self.known.get(name) != mark:
                self._put(here[name], name)
                self.known[name] = mark
        for name in [name for name in self.known if name.startswith(under and f"{under}/") and name not in here]:
            self._try("delete", name, lambda name=name: self.files.exists(self._at(name)) and self._remove(name))
            del self.known[name]

    def uploader(self, checkpoint_every: int) -> OnProgress:
        """Return a progress callback that uploads everything once the plan is final, then each run after a checkpoint
        or a change of its stage.

        Args:
            checkpoint_every: steps between checkpoints; a checkpoint is written after the event of its step.
        """

        def upload(progress: Progress) -> None:
            if progress.stage == "planned":
                self.push()
            if not progress.item:
                return
            step = progress.done or 0
            saved = step > 1 and (step - 1) % checkpoint_every == 0
            if saved or progress.stage in (*STATES, "measuring", "waiting"):
                self.push(progress.item)

        return upload

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _here(self, under: str) -> Iterable[tuple[str, Path]]:
        for path in (self.folder / under).rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") or part in LOCAL_ONLY for part in parts):
                yield "/".join(parts), path

    def _listed(self, under: str = "") -> dict[str, int]:
        self.files.invalidate_cache()
        if not self.files.exists(self._at(under)):
            return {}
        found = self.files.find(self._at(under), detail=True)
        names = {path.removeprefix(self.root).lstrip("/"): int(about["size"] or 0) for path, about in found.items()}
        return {name: size for name, size in names.items() if not name.startswith(".")}

    def _replace(self, run: str, names: Iterable[str]) -> None:
        """Replace a run by its remote copy, atomically: download beside it, then rename."""
        target = self.folder / "runs" / run
        temporary = target.with_name(f".fetched-{run}")
        shutil.rmtree(temporary, ignore_errors=True)
        for name in names:
            self._get(name, temporary / name.removeprefix(f"runs/{run}/"))
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)

    def _get(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".fetched-{target.name}")
        self._try("read", name, lambda: self.files.get_file(self._at(name), str(temporary)))
        temporary.replace(target)

    def _put(self, source: Path, name: str) -> None:
        def put() -> None:
            self.files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(source), self._at(name))

        self._try("write", name, put)

    def _remove(self, name: str) -> None:
        self.files.rm_file(self._at(name))

    def _try(self, what: str, name: str, work: Callable[[], Any]) -> Any:
        # each fsspec file system raises exceptions of its own
        for turn in range(MAX_ATTEMPTS - 1):
            try:
                return work()
            except Exception:
                time.sleep(FIRST_DELAY * 2**turn)
        try:
            return work()
        except Exception as error:
            raise OSError(
                f"cannot {what} {self.url}/{name} ({type(error).__name__}: {error}), tried {MAX_ATTEMPTS} times; "
                f"finished work is kept in {self.folder}; repeat the command once the URL can be reached"
            ) from error


def open_output(out: str | None, default_name: str) -> tuple[Path, RemoteCopy | None]:
    """Return the working folder for an --out value, and its remote copy if the value is a URL.

    Args:
        out: the value of --out: a folder, or a URL such as s3://bucket/study; None if not given.
        default_name: name of the default folder in runs/.
    Raises:
        ValueError: a URL that fsspec does not support, or a folder that cannot be written to.
        OSError: the URL cannot be reached.
    """
    if out is None or not is_url(out):
        folder = Path(out) if out else Path("runs") / default_name
        check_output_folder(folder, ())
        return folder, None
    mirror = RemoteCopy(out)
    mirror.fetch()
    return mirror.folder, mirror


def _mark(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _rank(name: str) -> tuple[int, str]:
    """Sort key of uploads: files that vouch for others last, results after all others."""
    file = name.rpartition("/")[2]
    return (UPLOADED_LAST.index(file) + 1 if file in UPLOADED_LAST else 0), name


def _progress(names: Iterable[str]) -> tuple[int, bool]:
    """Progress of a run with these files: step of its newest checkpoint, and whether it has a result."""
    steps = [int(found[1]) for name in names if (found := re.search(r"/step-(\d+)/manifest\.json$", name))]
    return max(steps, default=-1), any(name.endswith("/result.json") for name in names)
