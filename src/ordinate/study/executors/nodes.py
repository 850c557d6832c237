"""Executor for several machines (nodes) that train one run together, started by torchrun or srun."""

import os
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore

from ordinate.core.checks import need
from ordinate.core.interruption import sigterm_as_interrupt
from ordinate.core.progress import OnProgress
from ordinate.study.executor import STALL_TIMEOUT, Executor
from ordinate.study.plan import Plan, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import WorkerPool, run_in_subprocess, worker_command
from ordinate.training.settings import RENDEZVOUS_VARIABLE, Hardware

# variables in which launchers pass the rank of this machine and the number of machines
RANKS = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
COUNTS = ("GROUP_WORLD_SIZE", "SLURM_NNODES")
# how long machines wait for each other at the start, and for the next run
CONNECT_TIMEOUT = timedelta(minutes=30)
RUN_TIMEOUT = timedelta(days=3650)
# how long the first machine finally waits for the others to disconnect
DISCONNECT_TIMEOUT = timedelta(minutes=1)
STUDY_OVER = "over"


class RendezvousStore:
    """A shared list of text lines on a TCP store: the first machine appends, the others read in order.

    torchrun already runs a store, at the address in its variables; otherwise the first machine hosts one.

    Args:
        node: rank of this machine.
    """

    def __init__(self, node: int) -> None:
        self.node, self.lines = node, 0
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The TCP store, connected on first use."""
        if self._store is None:
            given, port = os.environ, int(os.environ["MASTER_PORT"])
            keeps = self.node == 0 and given.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            store = TCPStore(
                given["MASTER_ADDR"], port, is_master=keeps, timeout=CONNECT_TIMEOUT, wait_for_workers=False
            )
            self._store = PrefixStore(f"ordinate {given.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        return self._store

    def write(self, line: str) -> None:
        """Append a line to the shared store, where `read` of the other process waits for it."""
        self.store.set(f"line {self.lines}", line)
        self.lines += 1

    def read(self) -> str:
        """Wait for the next line and return it."""
        self.store.wait([f"line {self.lines}"], RUN_TIMEOUT)
        self.lines += 1
        return self.store.get(f"line {self.lines - 1}").decode()


@dataclass(frozen=True)
class MultiNodeExecutor(Executor):
    """Runs one training at a time on several machines that share the study's folder.

    A launcher (torchrun, srun) starts the same command once on each machine. The first one leads the study: through a
    TCP store it tells the others which run is next, and the rendezvous address of its processes.

    Args:
        hardware: devices of each run.
        stall_timeout: stall timeout: a run without output for this long is killed [seconds].

    Raises:
        ValueError: the command was not started by a launcher on this number of machines.
    """

    hardware: Hardware
    stall_timeout: float = STALL_TIMEOUT
    rendezvous: RendezvousStore = field(
        init=False, repr=False, compare=False, default_factory=lambda: RendezvousStore(_node())
    )

    def __post_init__(self) -> None:
        nodes, given = self.hardware.nodes, os.environ
        remedy = "start it by torchrun or srun, one process per machine (docs/devices.md has examples)"
        known = _first(given, RANKS) is not None and "MASTER_ADDR" in given and "MASTER_PORT" in given
        need(known, f"a launcher must start the command on each of {nodes} machines", "got none", remedy)
        count = _first(given, COUNTS)
        fits = count in (None, str(nodes)) and self.node < nodes
        need(fits, f"one process must run on each of {nodes} machines", f"got machine {self.node} of {count}", remedy)
        local = given.get("LOCAL_WORLD_SIZE", "1")
        need(
            local == "1",
            "the launcher must start one process per machine; it starts the others",
            f"got {local}",
            remedy,
        )

    @property
    def node(self) -> int:
        """Rank of this machine; rank 0 leads the study."""
        return _node()

    def run_all(self, folder: StudyFolder, plan: Plan, runs: list[Run], on_progress: OnProgress) -> None:
        """Carry out these runs one after another, announcing each to the other machines."""
        pool = WorkerPool()
        # run_in_subprocess() runs in another thread: Ctrl-C interrupts this one, which then stops the worker and
        # waits for it
        with sigterm_as_interrupt(), ThreadPoolExecutor(max_workers=1) as submitter:
            try:
                for run in runs:
                    place = f"tcp://{os.environ['MASTER_ADDR']}:{_free_port()}"
                    self.rendezvous.write(f"{place} {run.name}")
                    arguments = (
                        folder,
                        plan,
                        run,
                        on_progress,
                        pool,
                        self.stall_timeout,
                        self.hardware,
                        self._environment(place),
                    )
                    submitter.submit(run_in_subprocess, *arguments).result()
            except BaseException:
                pool.stop()
                raise

    def release_followers(self) -> None:
        """Notify the other machines that the study is over, and wait until they have disconnected."""
        self.rendezvous.write(STUDY_OVER)
        # the store is hosted by this process (unless torchrun does), so it must outlive the others' last access
        with suppress(RuntimeError):
            self.rendezvous.store.wait([f"left {node}" for node in range(1, self.hardware.nodes)], DISCONNECT_TIMEOUT)

    def join_as_follower(self, folder: StudyFolder) -> bool:
        """Take part in every run that the first machine announces, until it ends the study; False on the first."""
        if self.node == 0:
            return False
        pool = WorkerPool()
        with sigterm_as_interrupt(), ThreadPoolExecutor(max_workers=1) as submitter:
            try:
                while (line := self.rendezvous.read()) != STUDY_OVER:
                    place, name = line.split(" ", 1)
                    environment = {**os.environ, **self._environment(place)}
                    command = worker_command(folder, name, self.hardware)
                    process = pool.start(command, stdout=subprocess.DEVNULL, env=environment)
                    if process is not None:
                        submitter.submit(process.wait).result()
            finally:
                pool.stop()
                self.rendezvous.store.set(f"left {self.node}", "")
        return True

    def _environment(self, place: str) -> dict[str, str]:
        return {RENDEZVOUS_VARIABLE: place, "NODE_RANK": str(self.node)}


def _node() -> int:
    return int(_first(os.environ, RANKS) or 0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if name in given), None)
