import os
import signal
import subprocess
import sys
import time

import pytest

from ordinate.study.distributed_launcher import RankProcesses
from ordinate.training.settings import Hardware

SAYS = "import os, sys; r = os.environ['RANK']; print('says', r); print('warns', r, file=sys.stderr); "
WAITS = "import time, signal; signal.signal(15, lambda *_: sys.exit(143)); print('waits', flush=True); time.sleep(60)"


def carried_out(tmp_path, program, capfd, devices=2, node=0, nodes=1):
    ranks = RankProcesses([sys.executable, "-c", program], Hardware(devices, nodes), node, tmp_path, "file:///x")
    code = ranks.wait_all()
    for process in ranks.processes:
        assert process.wait(10) is not None
    return code, *capfd.readouterr()


def test_standard_output_is_that_of_rank_zero(tmp_path, capfd):
    assert carried_out(tmp_path, SAYS, capfd) == (0, "says 0\n", "warns 0\n")


def test_each_rank_knows_its_number_and_the_rendezvous(tmp_path, capfd):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "ORDINATE_RENDEZVOUS")
    program = f"import os; print(*[os.environ[name] for name in {names}])"
    assert carried_out(tmp_path, program, capfd, node=1, nodes=2)[1] == "2 0 4 1 file:///x\n"


@pytest.mark.parametrize(
    ("fails", "code"), [("sys.exit(1)", 1), ("os.kill(os.getpid(), 9)", -9), ("raise RuntimeError('no room')", 1)]
)
def test_when_one_rank_fails_the_others_are_killed_and_its_message_is_passed_on(tmp_path, capfd, fails, code):
    began = time.monotonic()
    program = SAYS + f"\nif r == '1':\n    {fails}\n" + WAITS
    found, _, said = carried_out(tmp_path, program, capfd)
    assert found == code
    assert time.monotonic() - began < 30
    assert said.startswith("warns 1\n")
    assert said.endswith("(device 2 of 2; the others were killed)\n")
    assert ("no room" in said) == ("no room" in fails)


def test_all_ranks_are_waited_for_after_a_request_to_stop(tmp_path, capfd):
    program = [sys.executable, "-c", SAYS + WAITS]
    ranks = RankProcesses(program, Hardware(2), 0, tmp_path, "file:///x")
    seen = ""
    while "waits" not in seen:
        time.sleep(0.05)
        seen += capfd.readouterr().out
    time.sleep(1)
    ranks.stop(signal.SIGTERM, None)
    assert ranks.wait_all() == 143


def test_ranks_exit_with_the_process_that_started_them(tmp_path):
    waits = (
        "from ordinate.study.distributed_launcher import end_with_parent; end_with_parent(); "
        "print('up', flush=True); import time; time.sleep(60)"
    )
    parent = (
        "import os, sys; from pathlib import Path; from ordinate.study.distributed_launcher import RankProcesses; "
        "from ordinate.training.settings import Hardware; "
        f"ranks = RankProcesses([sys.executable, '-c', {waits!r}], Hardware(2), 0, Path({str(tmp_path)!r}), 'x'); "
        "print(*[process.pid for process in ranks.processes], flush=True); ranks.wait_all()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    said = [process.stdout.readline(), process.stdout.readline()]
    process.kill()
    process.wait()
    process.stdout.close()
    numbers = [int(word) for line in said if "up" not in line for word in line.split()]
    assert len(numbers) == 2
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{number}") and _alive(number) for number in numbers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(number):
    with open(f"/proc/{number}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
