"""A process that has loaded what runs need, and forks each run: loading takes seconds, forking none.

Started as `python -m ordinate.study.fork_server SOCKET`. It loads, and starts no thread; a fork would lose it.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

READY = b"ready"
# bytes that ask for a run: the path of a study's folder, and a name
LONGEST = 1 << 16


class Forked:
    """A process that the fork server has begun, looked after as one of `subprocess`.

    Args:
        said: where it writes what it says.
        status: where the fork server writes which process it is and, later, how it ended.
    """

    def __init__(self, said: int, status: int) -> None:
        self.stdout: IO[str] = os.fdopen(said, encoding="utf-8", errors="replace")
        self.status = os.fdopen(status)
        self.number = 0
        self.code: int | None = None

    def begin(self) -> None:
        """Hear which process it is.

        Raises:
            OSError: the fork server is gone.
        """
        if not (line := self.status.readline()):
            self.status.close()
            self.stdout.close()
            raise OSError("the fork server is gone")
        self.number = int(line)

    def poll(self) -> int | None:
        """How it ended; None if nobody has waited for that."""
        return self.code

    def wait(self) -> int:
        """How it ended, once it has."""
        with self.status:
            line = self.status.readline()
        if not line:
            # the fork server was ended itself, and who it began is nobody's
            self.kill()
        self.code = int(line or -signal.SIGKILL)
        return self.code

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.number, number)


class ForkServer:
    """The side that asks.

    Args:
        control: where the fork server listens.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control

    def start(self, arguments: Sequence[str], messages: int) -> Forked:
        """Fork a worker with these arguments.

        Args:
            arguments: the study's folder and the name of a run.
            messages: the file that takes what it says of errors.
        Raises:
            OSError: the fork server is gone.
        """
        (said, saying), (status, telling) = os.pipe(), os.pipe()
        process = Forked(said, status)
        # one that is gone is noticed below
        with suppress(OSError):
            socket.send_fds(self.control, [json.dumps(list(arguments)).encode()], [saying, messages, telling])
        os.close(saying)
        os.close(telling)
        process.begin()
        return process


@contextmanager
def fork_server(environment: Mapping[str, str]) -> Iterator[ForkServer | None]:
    """A fork server that is ready; None where the system has none, or it could not begin.

    Args:
        environment: variables of every run.
    """
    if sys.platform != "linux":
        # forking without beginning anew is safe on Linux only
        yield None
        return
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __spec__.name, str(there.fileno())]
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # asked without it whether there is a GPU, CUDA would begin here, and not in a forked process
    variables = {**environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    process = subprocess.Popen(command, env=variables, pass_fds=[there.fileno()], **silent)
    try:
        with here:
            there.close()
            yield ForkServer(here) if here.recv(len(READY)) == READY else None
    finally:
        process.wait()


def serve(control: socket.socket) -> list[str] | None:
    """Fork for whoever asks: returns in each forked process, with its arguments; None once nobody asks any more."""
    begun: dict[int, tuple[int, int]] = {}
    control.send(READY)
    while True:
        for ready in select.select([control.fileno(), *begun], [], [])[0]:
            if ready in begun:
                number, status = begun.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
                _write(status, code)
                os.close(status)
                os.close(ready)
                continue
            asked, files, _, _ = socket.recv_fds(control, LONGEST, 3)
            if not asked:
                return None
            said, messages, status = files
            number = os.fork()
            if number == 0:
                for held in (status, *(one for watched, (_, other) in begun.items() for one in (watched, other))):
                    os.close(held)
                for place, file in ((1, said), (2, messages)):
                    os.dup2(file, place)
                    os.close(file)
                return json.loads(asked)
            begun[os.pidfd_open(number)] = number, status
            _write(status, number)
            os.close(said)
            os.close(messages)


def _write(status: int, number: int) -> None:
    # whoever asked may be gone
    with suppress(OSError):
        os.write(status, f"{number}\n".encode())


def main() -> int:
    """Load, then serve; in a forked process, carry its run out."""
    # signals of the keyboard are for the runs, and this process ends when the one that asks does
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    from ordinate.study import worker
    from ordinate.training import lightning  # noqa: F401

    with socket.socket(fileno=int(sys.argv[1])) as control:
        arguments = serve(control)
    if arguments is None:
        return 0
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.argv[1:] = arguments
    return worker.main()


if __name__ == "__main__":
    ended = main()
    from ordinate.training.team import leave

    leave(ended)
