"""Carry out one run in a worker process, watch over it, and record how it ended."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

from ordinate.core.class_reference import ALLOW_VARIABLE, references
from ordinate.core.module_command import module_command
from ordinate.core.progress import OnProgress, Progress, for_item
from ordinate.study.fork_server import ForkedProcess, ForkServer
from ordinate.study.plan import Plan, Run
from ordinate.study.result_file import read_result
from ordinate.study.run import FINAL_STATES, State
from ordinate.study.study_folder import StudyFolder
from ordinate.training.settings import Hardware

# last lines of a failed run's standard error that its result keeps
KEPT_LINES = 20
# exit codes of a worker that was asked to stop: 128 + signal by itself, or killed by the signal
STOPPED_EXIT_CODES = (130, 143, -2, -15)
ONE_DEVICE = Hardware()
# for the C library of Linux, which returns large blocks to the system by default: a step of training would get them
# back by page faults. Older versions ignore a larger threshold for mmap, and would then map small blocks one by one
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": "8000000000"}
WORKER, LAUNCHER = "ordinate.study.worker", "ordinate.study.distributed_launcher"
Process = subprocess.Popen[str] | ForkedProcess


class WorkerPool:
    """The pool of running worker processes, which can be asked to stop together.

    Args:
        forks: fork server that starts single-device runs; None to start new interpreters.
    """

    def __init__(self, forks: ForkServer | None = None) -> None:
        self.stopped = False
        self._forks, self._lock = forks, threading.Lock()
        self._processes: list[Process] = []

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[str] | None:
        """Start a process; None after `stop`."""
        with self._lock:
            if self.stopped:
                return None
            process = subprocess.Popen(command, text=True, **options)
            self._processes.append(process)
            return process

    def start_worker(self, command: list[str], messages: IO[str], environment: Mapping[str, str]) -> Process | None:
        """Start a worker process, by the fork server where possible; None after `stop`."""
        if self._forks:
            with self._lock, suppress(OSError):
                if self.stopped:
                    return None
                forked = self._forks.start(command[command.index(WORKER) + 1 :], messages.fileno())
                self._processes.append(forked)
                return forked
        return self.start(command, stdout=subprocess.PIPE, stderr=messages, env=environment)

    def stop(self) -> None:
        """Ask each process to save a checkpoint and exit, and start no more."""
        with self._lock:
            self.stopped = True
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()


class Watchdog:
    """Watchdog: kills a process that has no output for too long; its first line may take ten times as long.

    Args:
        process: the process.
        stall_timeout: stall timeout [seconds].
    """

    def __init__(self, process: Process, stall_timeout: float) -> None:
        self.process, self.stall_timeout, self.ended = process, stall_timeout, False
        self.timer = self._timer(10 * stall_timeout)

    def reset(self) -> None:
        """Restart the timeout, after a line of output."""
        self.cancel()
        self.timer = self._timer(self.stall_timeout)

    def cancel(self) -> None:
        """Stop the timer; a silent process is not ended any more."""
        self.timer.cancel()

    def _timer(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        return timer

    def _end(self) -> None:
        self.ended = True
        self.process.kill()


def run_in_subprocess(
    folder: StudyFolder,
    plan: Plan,
    run: Run,
    on_progress: OnProgress,
    pool: WorkerPool,
    stall_timeout: float,
    hardware: Hardware = ONE_DEVICE,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Carry out one run in a worker process, and record how it ended.

    Args:
        folder: the study's folder.
        plan: the study's plan.
        run: the run.
        on_progress: receives progress events.
        pool: pool that the worker joins, so that all can be stopped together.
        stall_timeout: stall timeout: a run without output for this long is killed [seconds].
        hardware: devices to train on.
        environment: additional environment variables of the worker.
    """
    steps, place = plan.for_run(run).steps, folder.run(run)
    on_progress = for_item(on_progress, run.name, steps)
    place.mkdir(parents=True, exist_ok=True)
    if folder.status(run) not in FINAL_STATES:
        # the result of an earlier failed attempt must not be taken for that of this one
        folder.result(run).unlink(missing_ok=True)
    command = worker_command(folder, run.name, hardware)
    with (place / "messages.txt").open("w", encoding="utf-8") as messages:
        process = pool.start_worker(command, messages, {**worker_environment(folder), **(environment or {})})
        if process is None or process.stdout is None:
            return
        on_progress(Progress(stage="training"))
        guard = Watchdog(process, stall_timeout)
        with process.stdout:
            for line in process.stdout:
                guard.reset()
                _pass_on(line, steps, on_progress)
        code = process.wait()
        guard.cancel()
    _conclude(folder, run, code, on_progress, pool, guard)


def worker_environment(folder: StudyFolder) -> dict[str, str]:
    """Return the environment of a worker: this process's, with the threads and the classes that it may import.

    The allocator keeps freed memory, unless this process's environment says otherwise.
    """
    number = str(folder.threads() or 1)
    threads = {"OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
    return {**KEEP_MEMORY, **os.environ, **threads, **allowing(folder.trusted_plan())}


def allowing(plan: Plan) -> dict[str, str]:
    """Return the environment variable by which a process may import the classes of a plan, as this one may."""
    named = references(*plan.specifications)
    return {ALLOW_VARIABLE: ",".join([*named, *filter(None, [os.environ.get(ALLOW_VARIABLE)])])} if named else {}


def worker_command(folder: StudyFolder, name: str, hardware: Hardware) -> list[str]:
    """Return the command of a worker process, or for several devices of the launcher that starts one for each."""
    program = WORKER if hardware.world_size == 1 else LAUNCHER
    devices = [] if hardware.world_size == 1 else [json.dumps(asdict(hardware))]
    return module_command(program, str(folder.path), name, *devices)


def _pass_on(line: str, steps: int, on_progress: OnProgress) -> None:
    """Report a line of a worker's output, if it is a progress event."""
    try:
        update = json.loads(line)
    except ValueError:
        # output of a library, not a progress event
        return
    if isinstance(update, dict):
        done = steps if update.get("stage") == "measuring" else int(update.get("step", 0))
        on_progress(Progress(stage=str(update.get("stage", "training")), done=done, loss=update.get("loss")))


def _conclude(
    folder: StudyFolder, run: Run, code: int, on_progress: OnProgress, pool: WorkerPool, guard: Watchdog
) -> None:
    # a worker may have finished its result just before it was stopped, so the result decides first
    state = folder.status(run)
    if state != "pending":
        on_progress(Progress(stage=state, message="" if state == "done" else _message(folder, run)))
        return
    if (pool.stopped or code in STOPPED_EXIT_CODES) and not guard.ended:
        on_progress(Progress(stage="waiting"))
        return
    lines = (folder.run(run) / "messages.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    end = "\n".join(lines[-KEPT_LINES:])
    state, message = _ending(code, end, guard)
    folder.record_end(run, state, message)
    on_progress(Progress(stage=state, message=message))


def _ending(code: int, messages: str, guard: Watchdog) -> tuple[State, str]:
    """Return final state and message of a process that left no result."""
    if guard.ended:
        return "killed", f"it had no output for {guard.stall_timeout:g} seconds, and was killed\n{messages}".strip()
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        hint = "; the system sends it when memory runs out" if name == "SIGKILL" else ""
        return "killed", f"killed by {name}{hint}\n{messages}".strip()
    return "failed", messages or f"the process exited with code {code} without a message"


def _message(folder: StudyFolder, run: Run) -> str:
    return str(read_result(folder.result(run))["message"])
