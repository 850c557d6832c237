"""Fork server: a process that has imported everything that runs need and forks each worker, which saves the seconds
that imports take.

Started as `python -P -m ordinate.study.fork_server SOCKET`. It imports, but starts no thread: a forked child has only
the thread that called fork, so others would be lost.

The forkserver of multiprocessing cannot replace it: it starts with the current folder on the path, keeps the
environment of its first start for all later studies, and when it is killed its workers go on but count as ended.
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

from ordinate.core.module_command import module_command

READY = b"ready"
# largest request in bytes: the path of a study's folder, and the name of a run
MAX_REQUEST = 1 << 16


class ForkedProcess:
    """A worker process started by the fork server, with the interface of `subprocess.Popen`.

    Args:
        stdout: file descriptor of the worker's standard output.
        status: file descriptor on which the fork server writes the worker's process id and, later, its exit code.
    """

    def __init__(self, stdout: int, status: int) -> None:
        self.stdout: IO[str] = os.fdopen(stdout, encoding="utf-8", errors="replace")
        self.status = os.fdopen(status)
        self.pid = 0
        self.returncode: int | None = None

    def read_pid(self) -> None:
        """Read the worker's process id.

        Raises:
            OSError: the fork server has exited.
        """
        if not (line := self.status.readline()):
            self.status.close()
            self.stdout.close()
            raise OSError("the fork server has exited")
        self.pid = int(line)

    def poll(self) -> int | None:
        """Exit code; None before `wait` has returned."""
        return self.returncode

    def wait(self) -> int:
        """Wait for the process to exit and return its exit code."""
        with self.status:
            line = self.status.readline()
        if not line:
            # the fork server was killed; as only it can wait for its children, the worker is killed too
            self.kill()
        self.returncode = int(line or -signal.SIGKILL)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """Client of the fork server.

    Args:
        control: socket to the fork server.
    """

    def __init__(self, control: socket.socket) -> None:
        self.control = control

    def start(self, arguments: Sequence[str], messages: int) -> ForkedProcess:
        """Fork a worker with these arguments.

        Args:
            arguments: the study's folder and the name of a run.
            messages: file descriptor for the worker's standard error.
        Raises:
            OSError: the fork server has exited.
        """
        (stdout_read, stdout_write), (status_read, status_write) = os.pipe(), os.pipe()
        process = ForkedProcess(stdout_read, status_read)
        # a server that has exited is noticed by read_pid()
        with suppress(OSError):
            socket.send_fds(
                self.control, [json.dumps(list(arguments)).encode()], [stdout_write, messages, status_write]
            )
        os.close(stdout_write)
        os.close(status_write)
        process.read_pid()
        return process


@contextmanager
def fork_server(environment: Mapping[str, str]) -> Iterator[ForkServer | None]:
    """Start a fork server; yields None on systems without a safe fork, or if it could not start.

    Args:
        environment: environment variables of every worker.
    """
    if sys.platform != "linux":
        # fork without exec is safe on Linux only
        yield None
        return
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = module_command(__spec__.name, str(there.fileno()))
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # by default torch.cuda.is_available() initialises CUDA, which then cannot be used in forked children
    variables = {**environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    process = subprocess.Popen(command, env=variables, pass_fds=[there.fileno()], **silent)
    try:
        with here:
            there.close()
            yield ForkServer(here) if here.recv(len(READY)) == READY else None
    finally:
        process.wait()


def serve(control: socket.socket) -> list[str] | None:
    """Fork a worker for each request; returns its arguments in each child, and None when the client disconnects."""
    children: dict[int, tuple[int, int]] = {}
    control.send(READY)
    while True:
        for ready in select.select([control.fileno(), *children], [], [])[0]:
            if ready in children:
                number, status = children.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
                _write(status, code)
                os.close(status)
                os.close(ready)
                continue
            request, files, _, _ = socket.recv_fds(control, MAX_REQUEST, 3)
            if not request:
                return None
            stdout, messages, status = files
            number = os.fork()
            if number == 0:
                # the child keeps only its own descriptors: a copy of another worker's would keep that pipe open
                for descriptor in (
                    status,
                    *(one for watched, (_, other) in children.items() for one in (watched, other)),
                ):
                    os.close(descriptor)
                for place, file in ((1, stdout), (2, messages)):
                    os.dup2(file, place)
                    os.close(file)
                return json.loads(request)
            children[os.pidfd_open(number)] = number, status
            # a pidfd becomes readable when the child exits, so that select() can wait for it
            _write(status, number)
            os.close(stdout)
            os.close(messages)


def _write(status: int, number: int) -> None:
    # the client may have exited
    with suppress(OSError):
        os.write(status, f"{number}\n".encode())


def main() -> int:
    """Import, then serve; in a forked child, carry out its run."""
    # Ctrl-C reaches the whole process group; it is meant for the workers, and this process exits with its client
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
    from ordinate.training.process_group import exit_now

    exit_now(ended)
