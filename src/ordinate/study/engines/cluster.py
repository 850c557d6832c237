"""The runs of a study on a Ray cluster."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

from ordinate.checks import need
from ordinate.study.about import code_digest
from ordinate.study.engine import PATIENCE, Engine, News, Watch
from ordinate.study.folder import Folder
from ordinate.study.follow import standing
from ordinate.study.mirror import Mirror
from ordinate.study.plan import Plan, Run
from ordinate.study.process import ONE_DEVICE, Crew, attempt, terminable
from ordinate.training.settings import Hardware

AUTO = "auto"
# how often a run is begun again on another machine before it counts as killed
TRIES = 5
# seconds between two looks at how far the runs are, and how many of them are looked at
EVERY, LOOKS = 1.0, 256
# seconds between two copies of a run to a URL
COPIES = 30.0
# so many runs are given to a cluster ahead: more than it has cores, and no more than it keeps in mind with ease
AHEAD = 4096
# how long a machine may take to answer [seconds]
ANSWER = 10.0
# how machines of a cluster know each other, where nothing else was said
TRUST = "token"


@dataclass(frozen=True)
class Cluster(Engine):
    """Runs wherever a Ray cluster has cores free.

    Ray only places processes and starts them again where a machine is lost; a run goes on from its checkpoint. What
    is true stands in the study's folder, which every machine must share, so results are those of a study on one
    machine. Nothing is reported to the makers of Ray, and no dashboard is opened.

    Args:
        address: of the cluster; `auto` takes the one at hand, or begins one on this machine.
        patience: a run that says nothing for so long is ended [seconds].
        mirror: the study's copy at a URL; None: all machines share its folder.
        hardware: the devices of a run, all of them of one machine.
    """

    address: str = AUTO
    patience: float = PATIENCE
    mirror: Mirror | None = None
    hardware: Hardware = ONE_DEVICE

    def __post_init__(self) -> None:
        need(
            self.patience > 0, "patience must be above zero", f"got {self.patience}", "give how long it may be silent"
        )

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result."""
        if not runs:
            return
        with session(self.address) as ray, terminable():
            needs = _needs(ray, folder.threads() or 1, self.hardware)
            remote = ray.remote(max_retries=TRIES, **needs)(_work)
            url, place = self.mirror and self.mirror.url, folder.path.resolve()
            code = code_digest()
            rest, waiting = iter(runs), {}
            while True:
                for run in islice(rest, AHEAD - len(waiting)):
                    waiting[remote.remote(code, url, place, run.name, self.patience, self.hardware)] = run
                if not waiting:
                    return
                ended, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=EVERY)
                for reference in ended:
                    if self.mirror:
                        self.mirror.fetch(waiting[reference].name)
                    _end(ray, reference, waiting.pop(reference), folder, watch)
                # those that were given first are at work
                for run in islice(waiting.values(), LOOKS):
                    _tell(folder, plan, run, watch)


def _needs(ray: ModuleType, threads: int, hardware: Hardware) -> dict[str, float]:
    """What a run needs of the machine that it is placed on: cores, and GPUs for several devices where there are some.

    Raises:
        ValueError: no machine has as much, so that Ray would wait for one forever.
    """
    needs = {"CPU": float(threads * hardware.devices)}
    if hardware.world > 1:
        if ray.cluster_resources().get("GPU"):
            needs = {"CPU": float(hardware.devices), "GPU": float(hardware.devices)}
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        need(
            any(all(machine.get(name, 0) >= much for name, much in needs.items()) for machine in machines),
            "a machine of the cluster has all devices of a run",
            f"got --devices {hardware.devices}, and no machine with {needs}",
            "give fewer",
        )
    return {f"num_{name.lower()}s": much for name, much in needs.items()}


def _work(code: str, url: str | None, path: Path, name: str, patience: float, hardware: Hardware) -> None:
    """What a machine of the cluster does: one run of a study, in its folder or at a URL."""
    need(
        code_digest() == code,
        "machines of a cluster have the Ordinate of the one that gives the command, or results would differ",
        f"{socket.gethostname()} has another",
        "install the same there",
    )
    if url is None:
        _attempt(path, name, patience, hardware)
    else:
        _mirrored(url, path, name, patience, hardware)


def _attempt(path: Path, name: str, patience: float, hardware: Hardware) -> None:
    """One run, in a process of its own."""
    folder = Folder(path)
    need(folder.study.exists(), "machines of a cluster share the study's folder", f"{path} is not here", "mount it")
    plan, crew = folder.plan(), Crew()
    (run,) = [run for run in plan.runs() if run.name == name]
    try:
        attempt(folder, plan, run, lambda news: None, crew, patience, hardware)
    finally:
        crew.stop()


def _mirrored(url: str, path: Path, name: str, patience: float, hardware: Hardware) -> None:
    """The same where the study's folder is not seen: what is needed is fetched, and what is made is copied."""
    mirror, over = Mirror(url, path), Event()
    mirror.fetch(name)

    def copy() -> None:
        while not over.wait(COPIES):
            mirror.push(name)

    copying = Thread(target=copy, daemon=True)
    copying.start()
    try:
        _attempt(path, name, patience, hardware)
    finally:
        over.set()
        copying.join()
        mirror.push(name)


def _end(ray: ModuleType, reference: Any, run: Run, folder: Folder, watch: Watch) -> None:
    message = ""
    try:
        ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"the cluster gave it up after {TRIES + 1} tries: {lines[-1]}"
        if isinstance(error, ray.exceptions.RayTaskError):
            message = lines[-1]
        folder.end(run, "failed" if isinstance(error, ray.exceptions.RayTaskError) else "killed", message)
    watch(News(run, folder.status(run), message=message))


def _tell(folder: Folder, plan: Plan, run: Run, watch: Watch) -> None:
    found = standing(folder, plan, run)
    if found.stage == "running":
        watch(News(run, "training", found.step, found.loss))


@contextmanager
def session(address: str) -> Iterator[ModuleType]:
    """Ray, connected to a cluster; one that was begun here ends with the study."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError("--ray needs Ray; it is not installed; pip install 'ordinate[cluster]'") from None
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
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
        # machines that know each other by a token say so; one machine alone needs none
        os.environ.setdefault("RAY_AUTH_MODE", TRUST if _has_token() else "disabled")
        ray.init(address=address, **options)
    except ConnectionError as error:
        if address != AUTO:
            raise _silent(address, str(error).splitlines()[0]) from None
        _begin(ray, options)


def _begin(ray: ModuleType, options: dict[str, Any]) -> None:
    """A cluster of this machine alone."""
    try:
        ray.init(include_dashboard=False, **options)
    except Exception as error:
        # Ray has no type of its own for a machine that is too busy to begin in half a minute
        why, _, _ = str(error).partition("\n")
        raise ValueError(
            f"--ray auto begins a cluster on this machine; it did not begin ({why}); "
            "run the same command again when the machine is less busy, or use --workers"
        ) from None


def _need_answer(address: str) -> None:
    """Raise if nobody listens there: Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "://" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as error:
        raise _silent(address, str(error)) from None


def _silent(address: str, why: str) -> ValueError:
    return ValueError(
        f"--ray names a cluster that answers; {address} does not ({why}); "
        "start it by `ray start --head`, or give auto"
    )


def _has_token() -> bool:
    return "RAY_AUTH_TOKEN" in os.environ or (Path.home() / ".ray" / "auth_token").exists()
