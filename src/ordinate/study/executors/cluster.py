"""Executor for a Ray cluster."""

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

from ordinate.core.checks import need
from ordinate.core.interruption import sigterm_as_interrupt
from ordinate.core.progress import OnProgress, Progress, for_item, ignore
from ordinate.study.executor import STALL_TIMEOUT, Executor
from ordinate.study.manifest import code_digest
from ordinate.study.plan import Plan, Run
from ordinate.study.remote_sync import RemoteCopy
from ordinate.study.run_progress import run_progress
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import ONE_DEVICE, WorkerPool, run_in_subprocess
from ordinate.training.settings import Hardware

AUTO = "auto"
# attempts by Ray to run a task again, on any machine, before the run counts as killed
MAX_RETRIES = 5
# seconds between two polls of progress, and how many of the runs are polled
POLL_SECONDS, MAX_POLLED = 1.0, 256
# seconds between two uploads of a run to a URL
UPLOAD_SECONDS = 30.0
# most tasks submitted at a time: more than a cluster has cores, few enough for Ray's scheduler
MAX_SUBMITTED = 4096
# connection timeout of the cluster's address [seconds]
CONNECT_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
# Ray's default authentication, where RAY_AUTH_MODE is not set
AUTH_MODE = "token"


@dataclass(frozen=True)
class RayExecutor(Executor):
    """Carries out runs as tasks of a Ray cluster, wherever cores are free.

    Ray only places processes, and restarts them when a machine is lost; a run then resumes from its checkpoint. The
    state is in the study's folder, which every machine must share, so results equal those of a single machine. Ray's
    usage statistics and dashboard are disabled.

    Args:
        address: address of the cluster; `auto` takes a running one, or starts one on this machine.
        stall_timeout: stall timeout: a run without output for this long is killed [seconds].
        mirror: remote copy of the study at a URL; None: all machines share its folder.
        hardware: devices of each run, all of them in one machine.
    """

    address: str = AUTO
    stall_timeout: float = STALL_TIMEOUT
    mirror: RemoteCopy | None = None
    hardware: Hardware = ONE_DEVICE

    def __post_init__(self) -> None:
        need(
            self.stall_timeout > 0,
            "the stall timeout must be above zero",
            f"got {self.stall_timeout}",
            "give the longest time without output",
        )

    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Submit these runs as Ray tasks, and poll their progress until each has a result."""
        if not runs:
            return
        with ray_session(self.address) as ray, sigterm_as_interrupt():
            needs = _needs(ray, folder.threads() or 1, self.hardware)
            remote = ray.remote(max_retries=MAX_RETRIES, **needs)(_work)
            url, place = self.mirror and self.mirror.url, folder.path.resolve()
            code = code_digest()
            rest, waiting = iter(runs), {}
            while True:
                for run in islice(rest, MAX_SUBMITTED - len(waiting)):
                    waiting[remote.remote(code, url, place, run.name, self.stall_timeout, self.hardware)] = run
                if not waiting:
                    return
                ended, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=POLL_SECONDS)
                for reference in ended:
                    run = waiting.pop(reference)
                    if self.mirror:
                        self.mirror.fetch(run.name)
                    _end(ray, reference, run, folder, for_item(on_progress, run.name, plan.for_run(run).steps))
                # tasks start in order of submission, so the first ones are those at work
                for run in islice(waiting.values(), MAX_POLLED):
                    _report_progress(folder, plan, run, on_progress)


def _needs(ray: ModuleType, threads: int, hardware: Hardware) -> dict[str, float]:
    """Ray resource request of a run: cores, and with several devices GPUs if the cluster has any.

    Raises:
        ValueError: no machine has that much; Ray would wait for one forever.
    """
    needs = {"CPU": float(threads * hardware.devices)}
    if hardware.world_size > 1:
        if ray.cluster_resources().get("GPU"):
            needs = {"CPU": float(hardware.devices), "GPU": float(hardware.devices)}
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        need(
            any(all(machine.get(name, 0) >= much for name, much in needs.items()) for machine in machines),
            "a single machine of the cluster must have all devices of a run",
            f"got --devices {hardware.devices}; no machine has {needs}",
            "give fewer devices",
        )
    return {f"num_{name.lower()}s": much for name, much in needs.items()}


def _work(code: str, url: str | None, path: Path, name: str, stall_timeout: float, hardware: Hardware) -> None:
    """Ray task: one run of a study, in the shared folder or at a URL."""
    need(
        code_digest() == code,
        "all machines must have the same Ordinate code as the one that gave the command, as results depend on it",
        f"{socket.gethostname()} has different code",
        "install the same version there",
    )
    if url is None:
        _attempt(path, name, stall_timeout, hardware)
    else:
        _mirrored(url, path, name, stall_timeout, hardware)


def _attempt(path: Path, name: str, stall_timeout: float, hardware: Hardware) -> None:
    """Carry out one run in a worker process."""
    folder = StudyFolder(path)
    need(
        folder.study.exists(),
        "machines of a cluster must share the study's folder",
        f"{path} does not exist here",
        "mount it",
    )
    plan, pool = folder.plan(), WorkerPool()
    (run,) = [run for run in plan.runs() if run.name == name]
    try:
        run_in_subprocess(folder, plan, run, ignore, pool, stall_timeout, hardware)
    finally:
        pool.stop()


def _mirrored(url: str, path: Path, name: str, stall_timeout: float, hardware: Hardware) -> None:
    """Carry out one run without a shared folder: fetch its files first, upload the new ones regularly."""
    mirror, over = RemoteCopy(url, path), Event()
    mirror.fetch(name)

    def copy() -> None:
        while not over.wait(UPLOAD_SECONDS):
            mirror.push(name)

    copying = Thread(target=copy, daemon=True)
    copying.start()
    try:
        _attempt(path, name, stall_timeout, hardware)
    finally:
        over.set()
        copying.join()
        mirror.push(name)


def _end(ray: ModuleType, reference: Any, run: Run, folder: StudyFolder, on_progress: OnProgress) -> None:
    message = ""
    try:
        ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"Ray gave up after {MAX_RETRIES + 1} attempts: {lines[-1]}"
        if isinstance(error, ray.exceptions.RayTaskError):
            message = lines[-1]
        folder.record_end(run, "failed" if isinstance(error, ray.exceptions.RayTaskError) else "killed", message)
    on_progress(Progress(stage=folder.status(run), message=message))


def _report_progress(folder: StudyFolder, plan: Plan, run: Run, on_progress: OnProgress) -> None:
    found = run_progress(folder, plan, run)
    if found.stage == "running":
        on_progress(Progress(run.name, "training", found.step, found.steps, found.loss))


@contextmanager
def ray_session(address: str) -> Iterator[ModuleType]:
    """Connect to Ray; a cluster started here is shut down at the end."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    _authenticate(address)
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError(
            "--ray needs the package ray; it is not installed; pip install 'ordinate[cluster]'"
        ) from None
    # Ray puts the current folder first on the path of its workers, where a file json.py would be executed in place of
    # Python's own, except in the job of a Ray client
    job = ray.job_config.JobConfig(_client_job=True)
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "job_config": job}
    began = not ray.is_initialized()
    try:
        if began:
            _connect(ray, address, options)
        yield ray
    finally:
        if began:
            ray.shutdown()


def _connect(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    _need_answer(address)
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        if address != AUTO:
            raise _silent(address, str(error).splitlines()[0]) from None
        _begin(ray, options)


def _authenticate(address: str) -> None:
    """Choose Ray's authentication, unless RAY_AUTH_MODE has: by a token where there is one.

    A cluster that is started here gets a token of its own, because other users of this machine reach its ports too;
    a running cluster without authentication ignores the token. Ray reads these variables when it is imported, so none
    is made for a process that has imported Ray before.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    if address == AUTO and not _has_token() and "ray" not in sys.modules:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["RAY_AUTH_MODE"] = AUTH_MODE if _has_token() else "disabled"


@contextmanager
def _loopback_only(ray: ModuleType) -> Iterator[None]:
    """Have a cluster that is started meanwhile listen on the loopback interface only.

    Ray binds to all interfaces unless its address is 127.0.0.1, and replaces that address, even when given, by the
    machine's own; not where clusters of several machines are disabled, as they are by default on macOS and Windows.
    """
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _begin(ray: ModuleType, options: dict[str, Any]) -> None:
    """Start a cluster of this machine alone, which other machines cannot reach."""
    try:
        with _loopback_only(ray):
            ray.init(include_dashboard=False, _node_ip_address=LOOPBACK, **options)
    except Exception as error:
        # Ray raises plain exceptions when a busy machine does not start within half a minute
        why, _, _ = str(error).partition("\n")
        raise ValueError(
            f"--ray auto must be able to start a cluster on this machine; it did not start ({why}); "
            "repeat the command when the machine is less busy, or use --workers"
        ) from None
    # the setting above is internal to Ray
    came = ray.get_runtime_context().gcs_address
    need(
        came.startswith(f"{LOOPBACK}:"),
        "a cluster of this machine alone must listen on the loopback interface only",
        f"this version of Ray listens on {came}",
        "use --workers, or start a cluster yourself by `ray start --head` and give its address",
    )


def _need_answer(address: str) -> None:
    """Raise if nothing listens at the address: Ray itself would retry for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "://" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise _silent(address, str(error)) from None


def _silent(address: str, why: str) -> ValueError:
    return ValueError(
        f"--ray must name a reachable cluster; {address} does not answer ({why}); "
        "start it by `ray start --head`, or give auto"
    )


def _has_token() -> bool:
    return "RAY_AUTH_TOKEN" in os.environ or os.path.exists(os.path.expanduser("~/.ray/auth_token"))
