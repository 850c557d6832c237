"""Train in children of one warm process, kill them where asked, go on, and say what came out."""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from ordinate.batch import Batch
from ordinate.task import Task
from ordinate.training import lightning  # noqa: F401 - imported once, before the forks
from ordinate.training.loop import train
from ordinate.training.settings import Settings

STEPS, EVERY = 12, 4


class Sums(Task):
    """Say the sum of the last two numbers."""

    vocabulary = 11

    def sample(self, generator, count):
        """Random digits."""
        inputs = torch.randint(6, (count, 9), generator=generator)
        return Batch(inputs, inputs + inputs.roll(1, 1))


def tied_model():
    """A small model with dropout and tied weights."""
    torch.manual_seed(0)
    table, head = nn.Embedding(11, 16), nn.Linear(16, 11, bias=False)
    head.weight = table.weight
    return nn.Sequential(table, nn.Linear(16, 16), nn.Dropout(0.3), nn.GELU(), head)


def settings(**changes):
    """Short training."""
    base = {"steps": STEPS, "batch": 4, "seed": 3, "learning_rate": 1e-2, "warmup": 2, "checkpoint_every": EVERY}
    return Settings(**(base | changes))


def run(folder, model=None, task=None, watch=None, **changes):
    """Short training here: the model and what training was like."""
    model = model or tied_model()
    return model, train(model, task or Sums(), settings(**changes), folder, watch)


def weights(model):
    """All weights in a row."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def digest(model, folder):
    """Weights and metrics, to the bit."""
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    return [weights.hexdigest(), hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()]


def in_child(work):
    """Run `work` in a child; how the child ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def go(folder, precision, watch=None):
    """Train, or go on training, and write down what came out."""
    model = tied_model()
    train(model, Sums(), settings(precision=precision), folder, watch)
    (folder / "digest.json").write_text(json.dumps(digest(model, folder)))


def killed_at_step(step):
    """A watch that kills the process at a step."""
    return lambda at, loss: os.kill(os.getpid(), signal.SIGKILL) if at == step else None


def killed_at_call(names, count):
    """Kill the process at the n-th of these system calls."""
    left = [count]

    def wrap(call):
        def wrapped(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in names:
        setattr(os, name, wrap(getattr(os, name)))


def trial(root, number, precision, disturb):
    """Disturb one training, let it go on, and compare with the undisturbed one."""
    folder = root / f"trial-{number}"
    died = in_child(lambda: disturb(folder))
    went_on = in_child(lambda: go(folder, precision))
    same = went_on == 0 and (folder / "digest.json").read_text() == (root / "calm" / "digest.json").read_text()
    shutil.rmtree(folder)
    return {"died": died, "went_on": went_on, "same": same}


def main():
    """`victim.py FOLDER PRECISION steps|calls|random COUNT`."""
    root, precision, kind, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    calm = in_child(lambda: go(root / "calm", precision))
    # a second time, warm: instants are drawn from the whole length of a training, so that most of them hit it
    begin = time.perf_counter()
    calm = calm or in_child(lambda: go(root / "warm", precision))
    seconds = time.perf_counter() - begin
    outcomes = [] if calm == 0 else [{"died": 0, "went_on": calm, "same": False}]
    choose = random.Random(0)
    for number in range(1, count + 1):

        def disturb(folder, number=number):
            if kind == "steps":
                go(folder, precision, killed_at_step(number))
            elif kind == "calls":
                killed_at_call(("fsync", "replace"), number)
                go(folder, precision)
            else:
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(0, seconds) or 1e-6)
                go(folder, precision)

        choose.random()
        outcome = trial(root, number, precision, disturb)
        # a training that was done before its instant came says nothing
        while kind == "random" and outcome["died"] == 0 and outcome["same"]:
            choose.random()
            outcome = trial(root, number, precision, disturb)
        outcomes.append(outcome)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
