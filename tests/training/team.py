"""Train in teams of processes, forked from one that has imported everything, and say what came out."""

import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ordinate.core.seeds import derive_seed
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.training import lightning  # noqa: F401 - imported once, before the forks
from ordinate.training.loop import train
from ordinate.training.settings import Hardware, TrainingDiverged, TrainingSettings, TrainingStopped

STEPS, EVERY = 6, 3
ONE, DDP, FSDP = Hardware(), Hardware(2), Hardware(2, strategy="fsdp")
DROPPING = {"dropout": 0.2}


class Unequal(Task):
    """Repeat the number; later rows have fewer targets. The last process may be stopped."""

    vocabulary = 12

    def __init__(self, stop=None):
        self.stop = stop

    def sample(self, generator, count):
        inputs = torch.randint(10, (count, 8), generator=generator)
        asked = torch.arange(8) <= 7 - torch.arange(count)[:, None]
        if self.stop == generator.initial_seed() and os.environ.get("RANK") != "0":
            os.kill(os.getpid(), signal.SIGTERM)
        return Batch(inputs, inputs.masked_fill(~asked, IGNORE_INDEX))


class Spoiled(Unequal):
    """The last row of one step holds an 11."""

    def sample(self, generator, count):
        batch = super().sample(generator, count)
        batch.inputs[-1] = 11 if generator.initial_seed() == seed(4) else batch.inputs[-1]
        return batch


class Brittle(nn.Module):
    """NaN where it reads an 11: in what it says, or in its gradient only."""

    def __init__(self, where):
        super().__init__()
        torch.manual_seed(0)
        self.where, self.table, self.head = where, nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, ids):
        x = self.head(self.table(ids))
        bad = (ids == 11).any()
        if self.where == "loss":
            return torch.where(bad, float("nan"), x)
        x.register_hook(lambda gradient: torch.where(bad, float("nan"), gradient))
        return x


def seed(step):
    """What the batch of a step is drawn from."""
    return derive_seed(3, "batch", step - 1)


def decoder(**changes):
    """A small decoder."""
    torch.manual_seed(0)
    base = {"vocabulary": 12, "width": 16, "layers": 2, "heads": 2, "max_length": 8, "scheme": "t5"}
    return Decoder(Shape(**(base | changes)))


def checkpointed(**changes):
    """A small decoder with gradient checkpointing."""
    model = decoder(**changes)
    model.gradient_checkpointing_enable()
    return model


def work(folder, hardware, make=decoder, task=None, **changes):
    """Train, or resume training; return the outcome, the losses and the weights."""
    model, told = make(), []
    base = {
        "steps": STEPS,
        "batch": 4,
        "seed": 3,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "checkpoint_every": EVERY,
    }
    settings = TrainingSettings(**(base | changes))
    try:
        trace = train(
            model, task or Unequal(), settings, folder, lambda progress: told.append(progress.done), hardware
        )
    except (TrainingDiverged, TrainingStopped) as error:
        return {"ended": str(error), "told": told, "averaging": averaging(error)}
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    return {"ended": "done", "told": told, "losses": trace.losses, "weights": weights}


def averaging(error):
    """Of each copy of a model among the frames of an error, whether it still has what averages its gradients."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    copies = [frame.f_locals["self"] for frame in frames if "self" in frame.f_locals]
    return [hasattr(copy, "reducer") for copy in copies if isinstance(copy, DistributedDataParallel)]


def together(do, hardware):
    """What each of several processes says that do the same together; None where one ended otherwise than with 0."""
    with tempfile.TemporaryDirectory() as place:
        children = [_child(do, rank, hardware, place) for rank in range(hardware.world_size)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            print(f"the processes ended with {codes}", file=sys.stderr)
        return [
            json.loads((Path(place) / f"{rank}.json").read_text()) if code == 0 else None
            for rank, code in enumerate(codes)
        ]


def _child(do, rank, hardware, place):
    child = os.fork()
    if child:
        return child
    known = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": hardware.world_size, "NODE_RANK": 0}
    if hardware.world_size > 1:
        os.environ |= {name: str(value) for name, value in known.items()}
        os.environ["ORDINATE_RENDEZVOUS"] = f"file://{place}/meeting"
    try:
        (Path(place) / f"{rank}.json").write_text(json.dumps(do()))
    except BaseException:
        print(f"process {rank}:\n{traceback.format_exc()}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def scenarios(root, long):
    """By name, what each process says."""
    found = {}

    def go(name, folder, hardware, make=decoder, begun=None, **options):
        if begun:
            shutil.copytree(root / begun, root / folder)
        found[name] = together(partial(work, root / folder, hardware, make, **options), hardware)
        if None in found[name]:
            raise SystemExit(f"{name}: a process ended otherwise than by returning what it found")

    stopping = Unequal(seed(4))
    # what is imported late is imported once
    work(root / "warm", ONE)
    go("one", "one", ONE)
    go("ddp", "ddp", DDP)
    go("fsdp", "fsdp", FSDP)
    go("fsdp, stopped", "cut", FSDP, task=stopping)
    go("fsdp, then one", "cut-one", ONE, begun="cut")
    go("ddp, stopped", "again", DDP, task=stopping)
    go("ddp, again", "again", DDP)
    go("ddp, loss", "loss", DDP, make=partial(Brittle, "loss"), task=Spoiled())
    if long:
        go("one, stopped", "short", ONE, task=stopping)
        for name, hardware in (("ddp", DDP), ("fsdp", FSDP)):
            go(f"one, then {name}", f"short-{name}", hardware, begun="short")
            go(f"{name}, gradient", f"gradient-{name}", hardware, make=partial(Brittle, "gradient"), task=Spoiled())
            go(f"{name}, dropping", f"calm-{name}", hardware, make=partial(decoder, **DROPPING))
            go(f"{name}, dropping, stopped", f"again-{name}", hardware, partial(decoder, **DROPPING), task=stopping)
            go(f"{name}, dropping, again", f"again-{name}", hardware, partial(decoder, **DROPPING))
            # activations are computed again, with the same dropout
            go(f"{name}, checkpointed", f"checkpointed-{name}", hardware, make=partial(checkpointed, **DROPPING))
        for name, hardware in (("one", ONE), ("ddp", DDP), ("fsdp", FSDP)):
            go(f"{name}, bf16", f"bf16-{name}", hardware, precision="bf16")
            undone = partial(decoder, blocks="reversible")
            go(f"{name}, reversible", f"reversible-{name}", hardware, make=undone)
    return found


def main():
    """`team.py FOLDER quick|long`."""
    torch.set_num_threads(1)
    print(json.dumps(scenarios(Path(sys.argv[1]), sys.argv[2] == "long")))


if __name__ == "__main__":
    main()
