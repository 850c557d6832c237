"""Run `ordinate train` as two machines (both this one); returns their exit codes and output."""

import os
import socket
import subprocess
import sys

MAIN = "import sys; from ordinate.cli.main import main; sys.exit(main())"


def free_port():
    """Return a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def begin(*arguments, nodes=2):
    """Start the command once for each machine."""
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", MAIN, "train", *arguments, "--nodes", str(nodes)],
            env={**os.environ, **known, "OMP_NUM_THREADS": "1", "NODE_RANK": str(node)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a launcher terminates all processes of a machine
            start_new_session=True,
        )
        for node in range(nodes)
    ]


def ended(processes):
    """Wait for all processes; returns exit codes and output."""
    said = [process.communicate(timeout=900)[0] for process in processes]
    return [process.returncode for process in processes], said


def train(*arguments, nodes=2):
    """Train on these machines; returns exit codes and output."""
    return ended(begin(*arguments, nodes=nodes))
