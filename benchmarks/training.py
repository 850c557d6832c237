"""Overhead of the training loop of a study over a bare PyTorch loop on the same model and batches."""

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from benchmarks.harness.saving import save
from ordinate import Decoder, Shape
from ordinate.core.seeds import derive_seed
from ordinate.data.batch import Batch
from ordinate.data.task import Task
from ordinate.training.loop import train
from ordinate.training.optimiser import learning_rate_at, make_optimiser
from ordinate.training.settings import TrainingSettings

STEPS, ROUNDS = 40, 5
SETTINGS = TrainingSettings(
    steps=STEPS, batch=32, warmup_steps=5, learning_rate=4e-3, precision="bf16", checkpoint_every=100
)


class Noise(Task):
    """Random tokens: the data does not matter here."""

    vocabulary = 256

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """A batch of windows."""
        windows = torch.randint(self.vocabulary, (count, 129), generator=generator)
        return Batch(windows[:, :-1], windows[:, 1:])


def model() -> Decoder:
    """The model of the quick study."""
    torch.manual_seed(0)
    return Decoder(Shape(vocabulary=256, width=96, layers=3, heads=4, scheme="rope"))


def bare(steps: int) -> list[float]:
    """Seconds of each step of a minimal training loop."""
    network, task = model(), Noise()
    optimiser = make_optimiser(network, SETTINGS.learning_rate, SETTINGS.weight_decay)
    ends = [time.perf_counter()]
    for step in range(steps):
        batch = task.sample(torch.Generator().manual_seed(derive_seed(0, "batch", step)), SETTINGS.batch)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate_at(step, peak=SETTINGS.learning_rate, warmup_steps=5, steps=steps)
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(batch.inputs)
        loss = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), SETTINGS.grad_clip)
        optimiser.step()
        loss.item()
        ends.append(time.perf_counter())
    return [later - earlier for earlier, later in pairwise(ends)][1:]


def studied() -> list[float]:
    """Seconds of each step of `train`, including its checks, metrics and checkpoint."""
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        train(model(), Noise(), SETTINGS, Path(folder), lambda progress: ends.append(time.perf_counter()))
        ends.append(time.perf_counter())
    spent = [later - earlier for earlier, later in pairwise(ends)]
    # the final checkpoint counts for the last step
    return [*spent[:-2], spent[-2] + spent[-1]]


def main(keep: bool) -> None:
    """Measure both in turns, and print the ratio of whole rounds and of single steps."""
    torch.set_num_threads(1)
    rounds = [(studied(), bare(STEPS)) for _ in range(ROUNDS)]
    whole = statistics.median(sum(ours) / sum(plain) for ours, plain in rounds)
    single = statistics.median(statistics.median(ours) / statistics.median(plain) for ours, plain in rounds)
    step = statistics.median(second for _, plain in rounds for second in plain)
    print(f"\ntraining, {ROUNDS} rounds of {STEPS} steps in turns, 1 thread; a bare step takes {step * 1e3:.1f} ms")
    print(f"{'ratio of whole rounds, checkpoint included':46}{whole:6.3f}\n{'ratio of median steps':46}{single:6.3f}")
    if keep:
        print(save("training", {"whole": whole, "step": single, "bare_step_seconds": step}))
