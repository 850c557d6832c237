"""`ordinate train` on two machines that are this one: what each says, and how it ends."""

import os
import socket
import subprocess
import sys

MAIN = "import sys; from ordinate.cli.main import main; sys.exit(main())"


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def begin(*arguments, nodes=2):
    """The command on each machine."""
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", MAIN, "train", *arguments, "--nodes", str(nodes)],
            env={**os.environ, **known, "OMP_NUM_THREADS": "1", "NODE_RANK": str(node)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a launcher asks all processes of a machine to end
            start_new_session=True,
        )
        for node in range(nodes)
    ]


def ended(processes):
    """How each machine ended, and what it said."""
    said = [process.communicate(timeout=900)[0] for process in processes]
    return [process.returncode for process in processes], said


def train(*arguments, nodes=2):
    """How each machine ended, and what it said."""
    return ended(begin(*arguments, nodes=nodes))
