"""Train in forked children, kill them at given instants, resume, and report the results."""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ordinate import Encoder, EncoderShape
from ordinate.core.progress import ignore
from ordinate.data.batch import Batch
from ordinate.data.task import Task
from ordinate.data.tasks.images import Images
from ordinate.data.tasks.masked import Masked
from ordinate.data.tasks.translation import Translation
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.training import lightning  # noqa: F401 - imported once, before the forks
from ordinate.training.loop import train
from ordinate.training.settings import TrainingSettings

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
    base = {
        "steps": STEPS,
        "batch": 4,
        "seed": 3,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "checkpoint_every": EVERY,
    }
    return TrainingSettings(**(base | changes))


def run(folder, model=None, task=None, watch=ignore, **changes):
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


def encoder():
    """A reader of hidden tokens."""
    tokens = np.random.default_rng(0).integers(0, 10, 200)
    model = Encoder(EncoderShape(vocabulary=11, scheme="learned", **SMALL))
    return model, Masked(tokens=tokens, vocabulary=11, length=9)


def encoder_decoder():
    """A translator of lines of several lengths."""
    lines = [np.random.default_rng(size).integers(0, 10, 2 + size % 6) for size in range(30)]
    shape = EncoderDecoderShape(vocabulary=12, end=10, start=11, padding=11, cross_scheme="t5", **SMALL)
    return EncoderDecoder(shape), Translation(sources=lines, targets=lines[::-1], tokens=10, length=8)


def vision():
    """A reader of images."""
    draw = np.random.default_rng(0)
    pixels, labels = draw.integers(0, 255, (20, 1, 8, 8), np.uint8), draw.integers(0, 3, 20)
    model = VisionTransformer(VisionShape(vocabulary=3, image=(8, 8), patch=(4, 4), channels=1, **SMALL))
    return model, Images(pixels=pixels, labels=labels, classes=("a", "b", "c"), shift=1)


SMALL = {"width": 16, "layers": 2, "heads": 2, "max_length": 16, "dropout": 0.2}
KINDS = {made.__name__: made for made in (encoder, encoder_decoder, vision)}


def go(folder, precision, watch=ignore, kind=None):
    """Train, or resume training, and write the result."""
    torch.manual_seed(0)
    model, task = KINDS[kind]() if kind else (tied_model(), Sums())
    train(model, task, settings(precision=precision), folder, watch)
    (folder / "digest.json").write_text(json.dumps(digest(model, folder)))


def killed_at_step(step):
    """A watch that kills the process at a step."""
    return lambda progress: os.kill(os.getpid(), signal.SIGKILL) if progress.done == step else None


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


def trial(root, number, precision, disturb, kind=None):
    """Interrupt a training run, resume it, and compare it with an uninterrupted one."""
    folder = root / f"trial-{number}"
    died = in_child(lambda: disturb(folder))
    went_on = in_child(lambda: go(folder, precision, kind=kind))
    same = went_on == 0 and (folder / "digest.json").read_text() == (root / "calm" / "digest.json").read_text()
    shutil.rmtree(folder)
    return {"died": died, "went_on": went_on, "same": same}


def each_kind_killed(root, precision, step):
    """Outcomes of the training of each kind of model that is killed at this step."""
    outcomes, watch = [], killed_at_step(step)
    for kind in KINDS:
        place = root / kind
        calm = in_child(lambda place=place, kind=kind: go(place / "calm", precision, kind=kind))
        outcome = trial(place, step, precision, lambda folder, kind=kind: go(folder, precision, watch, kind), kind)
        outcomes.append({"kind": kind, "calm": calm, **outcome})
    return outcomes


def main():
    """`victim.py FOLDER PRECISION steps|calls|random COUNT`, or `victim.py FOLDER PRECISION kinds STEP`."""
    root, precision, kind, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    if kind == "kinds":
        print(json.dumps(each_kind_killed(root, precision, count)))
        return
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
