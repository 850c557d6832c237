"""Carry out a small study in forked children, kill each in a chosen phase, repeat it, and compare the results.

`study_victim.py FOLDER COUNT` prints a line of JSON for each kill: the phase in which it fell, and whether the study
that was then repeated has the results of one that was never interrupted.
"""

import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from ordinate.core.atomic_files import read_checksummed, unfinished_files
from ordinate.report import build
from ordinate.study import runner, worker
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import ThreadChoice
from ordinate.training import (
    checkpoint_plugin,
    lightning,  # noqa: F401 - imported once, before the forks
)

# phases that a study has once
ONCE = ("reading data", "report")
PHASES = ("reading data", "planning", "training", "checkpoint", "saving the model", "measuring", "result", "report")
LENGTHS = {name: [] for name in PHASES}
# the phase that a child is in, readable after its death; and the phase and time at which it is to die
NOW, TARGET = mmap.mmap(-1, 64), {"phase": None, "share": 0.0, "skip": 0}
BEGAN = [None, 0.0]
CALM = mmap.mmap(-1, 4096)


def enter(phase):
    """Note the phase; where it is the one to die in, start the clock."""
    name, began = BEGAN
    if name is not None:
        LENGTHS[name].append(time.perf_counter() - began)
    BEGAN[:] = [phase, time.perf_counter()]
    NOW[:] = phase.ljust(64).encode()
    if phase == TARGET["phase"]:
        TARGET["skip"] -= 1
        if TARGET["skip"] < 0:
            # without a handler the signal ends the process at once, also inside a system call
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, TARGET["share"]))
            TARGET["phase"] = None


def entering(phase, call, then=None):
    """Wrap a function that is a phase of its own."""

    def wrapped(*args, **kwargs):
        before = BEGAN[0]
        enter(phase)
        try:
            return call(*args, **kwargs)
        finally:
            enter(then or before)

    return wrapped


class Here(LocalExecutor):
    """Carries out runs in this process."""

    def choose_threads(self, folder, plan, runs, on_progress):
        return ThreadChoice(1)

    def run_all(self, folder, plan, runs, on_progress):
        for run in runs:
            sys.argv = ["worker", str(folder.path), run.name]
            if worker.main():
                raise RuntimeError(f"{run.name} failed")


def watch(update, **facts):
    """The phase of a worker, by what it prints."""
    enter("measuring" if facts.get("stage") == "measuring" else "training")


def go(place, text):
    """Carry out the study, or what is missing of it, and write its report."""
    enter("planning")
    plan = resolve(
        Plan(
            text=str(text), schemes=("rope", "learned"), width=16, layers=1, heads=2, length=16, batch=4, steps=6,
            warmup_steps=1, checkpoint_every=2, eval_length_multiples=(1, 2), eval_samples=8, shuffle_samples=8,
            generated_texts=1, generated_tokens=8, threads=1, precision="fp32",
        )
    )  # fmt: skip
    enter("reading data")
    runner.run_study(plan, place, Here(1), "ordinate study", lambda p: p.stage == "planned" and enter("planning"))
    enter("report")
    build.build_report(place)
    enter("planning")


def prepare():
    """Make the phases of a worker known to this process."""
    worker.print_update = lambda **facts: watch(None, **facts)
    worker.write_checksummed = entering("result", worker.write_checksummed)
    saving = checkpoint_plugin.SafetensorsCheckpointIO
    saving.save_checkpoint = entering("checkpoint", saving.save_checkpoint)
    measured = worker._measured

    def saved(model, *rest):
        save = model.save_pretrained
        model.save_pretrained = entering("saving the model", save, "measuring")
        return measured(model, *rest)

    worker._measured = saved


def in_child(work):
    """Run `work` in a child; how the child ended."""
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def results(place):
    """What a study has found, without what it has cost; and its report's table."""
    folder = StudyFolder(place)
    found = [read_checksummed(folder.result(run)) for run in folder.plan().runs()]
    left = [path.name for path in place.rglob(".*") if path.name.endswith((".new", ".previous"))]
    left += [path.name for run in (place, *place.glob("runs/*")) for path in unfinished_files(run)]
    return (
        [{name: one[name] for name in one.keys() - {"cost"}} for one in found],
        left,
        (place / "report.html").exists(),
    )


def measure(place, text):
    """Carry out the study and hand its phases' lengths to the parent."""
    go(place, text)
    CALM[:] = json.dumps({name: max(found, default=0.0) for name, found in LENGTHS.items()}).ljust(4096).encode()


def trial(root, text, number, expected, lengths, choose):
    """Kill a study once, repeat it, and compare."""
    place, phase = root / f"trial-{number}", PHASES[number % len(PHASES)]
    share, skip = choose.uniform(0, lengths[phase]), 0 if phase in ONCE else choose.randrange(2)

    def disturbed():
        TARGET.update(phase=phase, share=share, skip=skip)
        go(place, text)

    died = in_child(disturbed)
    fell = NOW[:].decode().strip()
    if not died:
        # the phase was shorter than in the study that was measured: nothing was killed
        shutil.rmtree(place)
        return trial(root, text, number, expected, lengths, choose)
    again = in_child(lambda: go(place, text))
    same = again == 0 and results(place) == expected
    shutil.rmtree(place)
    return {"aimed": phase, "fell": fell, "died": died, "same": same}


def main():
    """Kill COUNT studies."""
    root, count = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    text = root / "text"
    text.mkdir(parents=True)
    for number in range(6):
        lines = "".join(f"line {number * word} is {word % 13}\n" for word in range(60))
        (text / f"{number}.txt").write_text(lines, encoding="utf-8")
    prepare()
    ended = in_child(lambda: measure(root / "calm", text))
    # a second time, warm
    ended = ended or in_child(lambda: measure(root / "warm", text))
    lengths, expected = json.loads(CALM[:].decode()), results(root / "calm")
    assert ended == 0
    assert results(root / "warm") == expected
    choose = random.Random(0)
    for number in range(count):
        print(json.dumps(trial(root, text, number, expected, lengths, choose)), flush=True)


if __name__ == "__main__":
    main()
