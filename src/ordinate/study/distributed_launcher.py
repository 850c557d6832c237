"""Launcher of a run on several devices: one worker process (rank) for each device of this machine.

Started as `python -P -m ordinate.study.distributed_launcher FOLDER RUN HARDWARE`, in place of
`ordinate.study.worker`. Standard output and exit code are those of the first rank; when one rank fails, the others
are killed, and its standard error is passed on.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ordinate.core.module_command import module_command
from ordinate.training.settings import RENDEZVOUS_VARIABLE, Hardware

# time for the other ranks to exit after the first one [seconds]
GRACE = 30.0
# exit codes after a request to stop, on which all ranks agree
STOPPED_EXIT_CODES = (130, 143)


class RankProcesses:
    """The worker processes of one machine.

    Args:
        command: command line of each worker.
        hardware: number of devices and machines.
        node: rank of this machine.
        stderr_folder: folder for their standard error.
        rendezvous: rendezvous address of the process group.
    """

    def __init__(
        self, command: list[str], hardware: Hardware, node: int, stderr_folder: Path, rendezvous: str
    ) -> None:
        self.hardware, self.node, self.place = hardware, node, stderr_folder
        self.ended: queue.Queue[tuple[int, int]] = queue.Queue()
        self.processes = [self._start(command, rank, rendezvous) for rank in range(hardware.devices)]
        for rank in range(hardware.devices):
            threading.Thread(target=self._await, args=(rank,), daemon=True).start()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: ask each worker to save a checkpoint and exit; Ctrl-C reaches them directly."""
        for process in self.processes:
            process.terminate()

    def wait_all(self) -> int:
        """Wait until all have exited; return the exit code of the first to fail, or else of rank 0."""
        code, failed = 0, None
        for _ in self.processes:
            rank, how = self.ended.get()
            if how not in (0, *STOPPED_EXIT_CODES) and failed is None:
                failed, code = rank, how
                self._end()
            elif rank == 0:
                code = code or how
                timer = threading.Timer(GRACE, self._end)
                timer.daemon = True
                timer.start()
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        self._pass_on_stderr(failed)
        return code

    def _start(self, command: list[str], local: int, meeting: str) -> subprocess.Popen[bytes]:
        rank = self.node * self.hardware.devices + local
        variables = {
            "RANK": rank,
            "LOCAL_RANK": local,
            "WORLD_SIZE": self.hardware.world_size,
            "NODE_RANK": self.node,
        }
        # of torchrun: with these variables the workers would use its store for their rendezvous
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
        environment = {
            **inherited,
            **{name: str(value) for name, value in variables.items()},
            RENDEZVOUS_VARIABLE: meeting,
        }
        if self.hardware.nodes == 1:
            # processes of one machine need the loopback interface only
            loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
            environment.setdefault("GLOO_SOCKET_IFNAME", *loopback[:1] or [""])
        stdout = None if local == 0 else subprocess.DEVNULL
        with (self.place / str(local)).open("wb") as messages:
            # workers exit when this process does: only it holds the other end of their standard input
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=messages, env=environment)

    def _await(self, rank: int) -> None:
        self.ended.put((rank, self.processes[rank].wait()))

    def _end(self) -> None:
        for process in self.processes:
            process.kill()

    def _pass_on_stderr(self, failed: int | None) -> None:
        """Pass on the standard error of the first rank to fail, or else of rank 0."""
        messages = (self.place / str(failed or 0)).read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(messages)
        if failed is not None and self.hardware.world_size > 1:
            rank = self.node * self.hardware.devices + failed
            sys.stderr.write(f"(device {rank + 1} of {self.hardware.world_size}; the others were killed)\n")
        sys.stderr.flush()


def main() -> int:
    """Carry out the run named on the command line on the devices given there."""
    command = module_command("ordinate.study.worker", *sys.argv[1:])
    hardware = Hardware(**json.loads(sys.argv[3]))
    with tempfile.TemporaryDirectory() as place, _stops() as stops:
        meeting = os.environ.get(RENDEZVOUS_VARIABLE, f"file://{place}/meeting")
        ranks = RankProcesses(command, hardware, int(os.environ.get("NODE_RANK", "0")), Path(place), meeting)
        stops.append(ranks)
        code = ranks.wait_all()
    if code < 0:
        # end by the same signal, so that the parent process sees how the worker ended
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def end_with_parent() -> None:
    """Exit this process when its parent has exited, which closes standard input."""

    def watch() -> None:
        with suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _stops() -> Iterator[list[RankProcesses]]:
    """Forward SIGTERM and SIGINT to the ranks in the returned list."""
    stops: list[RankProcesses] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for ranks in stops:
            ranks.stop(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    yield stops


if __name__ == "__main__":
    sys.exit(main())
