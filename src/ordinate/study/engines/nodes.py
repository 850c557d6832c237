"""The runs of a study, each on the devices of several machines at once."""

import os
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine, Watch
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan, Run
from ordinate.study.process import Crew, attempt, command_of, terminable
from ordinate.training.settings import MEETING, Hardware

# where launchers say which machine this is, and how many there are
RANKS = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
COUNTS = ("GROUP_WORLD_SIZE", "SLURM_NNODES")
# how long machines wait for each other at the beginning; then for as long as runs take
ARRIVAL = timedelta(minutes=30)
FOREVER = timedelta(days=3650)
# how long the first machine waits for the others in the end
FAREWELL = timedelta(minutes=1)
OVER = "over"


class Board:
    """What the first machine tells the others, on the network, one line after another.

    torchrun keeps a store already, at the address that it names; elsewhere the first machine does.

    Args:
        node: which machine this is.
    """

    def __init__(self, node: int) -> None:
        self.node, self.lines = node, 0
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """Where it is kept, since it was first needed."""
        if self._store is None:
            given, port = os.environ, int(os.environ["MASTER_PORT"])
            keeps = self.node == 0 and given.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            store = TCPStore(given["MASTER_ADDR"], port, is_master=keeps, timeout=ARRIVAL, wait_for_workers=False)
            self._store = PrefixStore(f"ordinate {given.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        return self._store

    def write(self, line: str) -> None:
        """Tell the next line."""
        self.store.set(f"line {self.lines}", line)
        self.lines += 1

    def read(self) -> str:
        """The next line, when it is told."""
        self.store.wait([f"line {self.lines}"], FOREVER)
        self.lines += 1
        return self.store.get(f"line {self.lines - 1}").decode()


@dataclass(frozen=True)
class Nodes(Engine):
    """One run at a time, on several machines that share the study's folder.

    A launcher (torchrun, srun) starts the same command once on each machine. The first conducts the study: it tells
    the others by a board on the network which run is next, and where its processes meet.

    Args:
        hardware: the devices of a run.
        patience: a run that says nothing for so long is ended [seconds].

    Raises:
        ValueError: nobody has started this command on so many machines.
    """

    hardware: Hardware
    patience: float = PATIENCE
    board: Board = field(init=False, repr=False, compare=False, default_factory=lambda: Board(_node()))

    def __post_init__(self) -> None:
        nodes, given = self.hardware.nodes, os.environ
        remedy = "start it by torchrun or srun, one process a machine (docs/devices.md has examples)"
        known = _first(given, RANKS) is not None and "MASTER_ADDR" in given and "MASTER_PORT" in given
        need(known, f"a launcher starts the command on each of {nodes} machines", "got none", remedy)
        count = _first(given, COUNTS)
        fits = count in (None, str(nodes)) and self.node < nodes
        need(fits, f"there is one process on each of {nodes} machines", f"got machine {self.node} of {count}", remedy)
        local = given.get("LOCAL_WORLD_SIZE", "1")
        need(
            local == "1", "the launcher starts one process a machine, which starts the others", f"got {local}", remedy
        )

    @property
    def node(self) -> int:
        """Which machine this is; the first conducts the study."""
        return _node()

    def carry_out(self, folder: Folder, plan: Plan, runs: list[Run], watch: Watch) -> None:
        """Do these runs; returns when each has a result."""
        crew = Crew()
        # interrupted, this thread waits until what is heard in the other has ended
        with terminable(), ThreadPoolExecutor(max_workers=1) as pool:
            try:
                for run in runs:
                    place = f"tcp://{os.environ['MASTER_ADDR']}:{_free_port()}"
                    self.board.write(f"{place} {run.name}")
                    told = folder, plan, run, watch, crew, self.patience, self.hardware, self._environment(place)
                    pool.submit(attempt, *told).result()
            except BaseException:
                crew.stop()
                raise

    def dismiss(self) -> None:
        """Tell the other machines that the study is over, and wait until they have heard it."""
        self.board.write(OVER)
        # who keeps the board leaves last
        with suppress(RuntimeError):
            self.board.store.wait([f"left {node}" for node in range(1, self.hardware.nodes)], FAREWELL)

    def follow(self, folder: Folder) -> bool:
        """Take part in what the first machine conducts, until that is over; False: this is the first."""
        if self.node == 0:
            return False
        crew = Crew()
        with terminable(), ThreadPoolExecutor(max_workers=1) as pool:
            try:
                while (told := self.board.read()) != OVER:
                    place, name = told.split(" ", 1)
                    environment = {**os.environ, **self._environment(place)}
                    command = command_of(folder, name, self.hardware)
                    process = crew.start(command, stdout=subprocess.DEVNULL, env=environment)
                    if process is not None:
                        pool.submit(process.wait).result()
            finally:
                crew.stop()
                self.board.store.set(f"left {self.node}", "")
        return True

    def _environment(self, place: str) -> dict[str, str]:
        return {MEETING: place, "NODE_RANK": str(self.node)}


def _node() -> int:
    return int(_first(os.environ, RANKS) or 0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if name in given), None)
