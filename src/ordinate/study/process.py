"""One run in a process of its own, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from types import FrameType
from typing import IO, Any

from ordinate.files import read_sealed
from ordinate.study.engine import News, Watch
from ordinate.study.folder import Folder
from ordinate.study.fork_server import Forked, ForkServer
from ordinate.study.plan import Plan, Run
from ordinate.study.state import FINAL, State
from ordinate.training.settings import Hardware

# the end of a failed run's messages that its result keeps
KEPT_LINES = 20
# how a process ends that was asked to stop: by itself, or by the signal
STOPPED = (130, 143, -2, -15)
ONE_DEVICE = Hardware()
WORKER, RANKS = "ordinate.study.worker", "ordinate.study.ranks"
Process = subprocess.Popen[str] | Forked


class Crew:
    """The processes at work, which can be asked to stop together.

    Args:
        forks: what begins runs of one device, where there is such a thing.
    """

    def __init__(self, forks: ForkServer | None = None) -> None:
        self.stopped = False
        self._forks, self._lock = forks, threading.Lock()
        self._processes: list[Process] = []

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[str] | None:
        """Start a process; None once all were asked to stop."""
        with self._lock:
            if self.stopped:
                return None
            process = subprocess.Popen(command, text=True, **options)
            self._processes.append(process)
            return process

    def work(self, command: list[str], messages: IO[str], environment: Mapping[str, str]) -> Process | None:
        """Start a process that carries a run out; None once all were asked to stop."""
        if self._forks:
            with self._lock, suppress(OSError):
                if self.stopped:
                    return None
                forked = self._forks.start(command[command.index(WORKER) + 1 :], messages.fileno())
                self._processes.append(forked)
                return forked
        return self.start(command, stdout=subprocess.PIPE, stderr=messages, env=environment)

    def stop(self) -> None:
        """Ask each process to save what it has and end, and start no more."""
        with self._lock:
            self.stopped = True
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts a study just as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Guard:
    """Ends a process that says nothing for too long; to its first word it has ten times as long.

    Args:
        process: which one.
        patience: so long [seconds].
    """

    def __init__(self, process: Process, patience: float) -> None:
        self.process, self.patience, self.ended = process, patience, False
        self.timer = self._timer(10 * patience)

    def hear(self) -> None:
        """It has said something."""
        self.leave()
        self.timer = self._timer(self.patience)

    def leave(self) -> None:
        """It need not be watched any more."""
        self.timer.cancel()

    def _timer(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.ended = True
        self.process.kill()


def attempt(
    folder: Folder,
    plan: Plan,
    run: Run,
    watch: Watch,
    crew: Crew,
    patience: float,
    hardware: Hardware = ONE_DEVICE,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Do one run in a process of its own, and write down how it ended.

    Args:
        folder: of the study.
        plan: what decides the results.
        run: which of its runs.
        watch: is told how far it is.
        crew: the processes that can be asked to stop together.
        patience: a run that says nothing for so long is ended [seconds].
        hardware: what it is trained on.
        environment: further variables for its processes.
    """
    place = folder.run(run)
    place.mkdir(parents=True, exist_ok=True)
    if folder.status(run) not in FINAL:
        # how an earlier try ended is no result of this one
        folder.result(run).unlink(missing_ok=True)
    command = command_of(folder, run.name, hardware)
    with (place / "messages.txt").open("w", encoding="utf-8") as messages:
        process = crew.work(command, messages, {**variables(folder), **(environment or {})})
        if process is None or process.stdout is None:
            return
        watch(News(run, "training"))
        guard = Guard(process, patience)
        with process.stdout:
            for line in process.stdout:
                guard.hear()
                _pass_on(line, plan, run, watch)
        code = process.wait()
        guard.leave()
    _conclude(folder, run, code, watch, crew, guard)


def variables(folder: Folder) -> dict[str, str]:
    """The environment of a run: ours, with as many threads as it is to have."""
    number = str(folder.threads() or 1)
    return {**os.environ, "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}


def command_of(folder: Folder, name: str, hardware: Hardware) -> list[str]:
    """What carries a run out: a process, or one that looks after those of several devices."""
    program = WORKER if hardware.world == 1 else RANKS
    devices = [] if hardware.world == 1 else [json.dumps(asdict(hardware))]
    return [sys.executable, "-m", program, str(folder.path), name, *devices]


def _pass_on(line: str, plan: Plan, run: Run, watch: Watch) -> None:
    try:
        news = json.loads(line)
    except ValueError:
        # a library's own word on standard output
        return
    if isinstance(news, dict):
        done = plan.of(run).steps if news.get("stage") == "measuring" else int(news.get("step", 0))
        watch(News(run, str(news.get("stage", "training")), done, news.get("loss")))


def _conclude(folder: Folder, run: Run, code: int, watch: Watch, crew: Crew, guard: Guard) -> None:
    state = folder.status(run)
    if state != "pending":
        watch(News(run, state, message="" if state == "done" else _message(folder, run)))
        return
    if (crew.stopped or code in STOPPED) and not guard.ended:
        watch(News(run, "waiting"))
        return
    said = (folder.run(run) / "messages.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    end = "\n".join(said[-KEPT_LINES:])
    state, message = _ending(code, end, guard)
    folder.end(run, state, message)
    watch(News(run, state, message=message))


def _ending(code: int, said: str, guard: Guard) -> tuple[State, str]:
    """How a process ended that left no result, and the message that says so."""
    if guard.ended:
        return "killed", f"it gave no sign of life for {guard.patience:g} seconds, and was ended\n{said}".strip()
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        hint = "; the system does that when memory runs out" if name == "SIGKILL" else ""
        return "killed", f"{name} ended it{hint}\n{said}".strip()
    return "failed", said or f"the process ended with code {code} and said nothing"


def _message(folder: Folder, run: Run) -> str:
    return str(read_sealed(folder.result(run))["message"])
