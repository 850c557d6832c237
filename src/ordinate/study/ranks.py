"""One run on several devices: a process for each, started together and ended together.

Started in place of `ordinate.study.worker`, as `python -m ordinate.study.ranks FOLDER RUN HARDWARE`. It says what the
first of them says, and ends as they do: when one fails, the others are ended, and what it said is the message.
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

from ordinate.training.settings import MEETING, Hardware

# how long processes have to end once the first is done [seconds]
GRACE = 30.0
# how a process ends that was asked to stop, as all of them agree to
STOPPED = (130, 143)


class Ranks:
    """The processes of one machine.

    Args:
        command: what each of them is.
        hardware: how many there are.
        node: which machine this is.
        place: a folder for what they say.
        meeting: where all of them meet.
    """

    def __init__(self, command: list[str], hardware: Hardware, node: int, place: Path, meeting: str) -> None:
        self.hardware, self.node, self.place = hardware, node, place
        self.ended: queue.Queue[tuple[int, int]] = queue.Queue()
        self.processes = [self._start(command, rank, meeting) for rank in range(hardware.devices)]
        for rank in range(hardware.devices):
            threading.Thread(target=self._await, args=(rank,), daemon=True).start()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Ask each to save what it has and end; SIGINT from a keyboard has reached them already."""
        for process in self.processes:
            process.terminate()

    def conclude(self) -> int:
        """Wait until all have ended; as the first to fail did, or else as the first of them."""
        code, failed = 0, None
        for _ in self.processes:
            rank, how = self.ended.get()
            if how not in (0, *STOPPED) and failed is None:
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
        self._tell(failed)
        return code

    def _start(self, command: list[str], local: int, meeting: str) -> subprocess.Popen[bytes]:
        rank = self.node * self.hardware.devices + local
        known = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": self.hardware.world, "NODE_RANK": self.node}
        # of a launcher of machines: its processes would meet elsewhere
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
        environment = {**inherited, **{name: str(value) for name, value in known.items()}, MEETING: meeting}
        if self.hardware.nodes == 1:
            # processes of one machine need no other network
            loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
            environment.setdefault("GLOO_SOCKET_IFNAME", *loopback[:1] or [""])
        said = None if local == 0 else subprocess.DEVNULL
        with (self.place / str(local)).open("wb") as messages:
            # they end when this process does: then nobody holds the other side of their standard input
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=messages, env=environment)

    def _await(self, rank: int) -> None:
        self.ended.put((rank, self.processes[rank].wait()))

    def _end(self) -> None:
        for process in self.processes:
            process.kill()

    def _tell(self, failed: int | None) -> None:
        """Pass on what the first to fail said, or else the first of them."""
        said = (self.place / str(failed or 0)).read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(said)
        if failed is not None and self.hardware.world > 1:
            rank = self.node * self.hardware.devices + failed
            sys.stderr.write(f"(device {rank + 1} of {self.hardware.world}; the others were ended with it)\n")
        sys.stderr.flush()


def main() -> int:
    """Carry out the run named on the command line on the devices named there."""
    command = [sys.executable, "-m", "ordinate.study.worker", *sys.argv[1:]]
    hardware = Hardware(**json.loads(sys.argv[3]))
    with tempfile.TemporaryDirectory() as place, _stops() as stops:
        meeting = os.environ.get(MEETING, f"file://{place}/meeting")
        ranks = Ranks(command, hardware, int(os.environ.get("NODE_RANK", "0")), Path(place), meeting)
        stops.append(ranks)
        code = ranks.conclude()
    if code < 0:
        # end as it did: whoever looks on sees the same signal
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def end_with_parent() -> None:
    """End this process once the one that started it is gone."""

    def watch() -> None:
        with suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _stops() -> Iterator[list[Ranks]]:
    """Signals are passed on to the ranks that are put into this list."""
    stops: list[Ranks] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for ranks in stops:
            ranks.stop(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    yield stops


if __name__ == "__main__":
    sys.exit(main())
