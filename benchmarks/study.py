"""How many runs an hour a study does, beside bare PyTorch loops that train and measure the same models and data.

The bare loops are as many processes as the study has, each already begun, with one run after another and nothing
between them: no checkpoints, no notes, no results. The study pays for starting a process a run, and for all of those.
The loops run before the study and after it, since a machine is not equally fast at all times; their mean counts.
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from benchmarks.saving import save
from ordinate.seeds import seed_of
from ordinate.study.beginning import begin
from ordinate.study.conduct import conduct
from ordinate.study.engine import News
from ordinate.study.engines.local import Local
from ordinate.study.folder import Folder
from ordinate.study.model import shape_of
from ordinate.study.pace import cores, measured
from ordinate.study.plan import Plan, Run
from ordinate.study.settle import settle
from ordinate.study.source import source_of
from ordinate.training.optimiser import learning_rate_at, make_optimiser

SCHEMES = ("rope", "alibi", "none", "sinusoidal")
GOAL = 0.85


class Silent:
    """Nobody who wants to know."""

    def reading(self, what: str) -> None:
        """Say nothing."""

    def planned(self, plan: Plan, todo: int) -> None:
        """Say nothing."""

    def news(self, news: News) -> None:
        """Say nothing."""


def bare(plan: Plan, run: Run, data: Path) -> tuple[float, float]:
    """Seconds of training and of measuring, with nothing in it that they do not need."""
    torch.set_num_threads(1)
    source = source_of(plan)(plan, data)
    task = source.task
    torch.manual_seed(run.seed)
    network = begin(plan, run, shape_of(plan, run, task.vocabulary))
    began = time.perf_counter()
    optimiser = make_optimiser(network, plan.learning_rate, plan.weight_decay)
    for step in range(plan.steps):
        batch = task.sample(torch.Generator().manual_seed(seed_of(run.seed, "batch", step)), plan.batch)
        for group in optimiser.param_groups:
            rate = learning_rate_at(step, highest=plan.learning_rate, warmup=plan.warmup, steps=plan.steps)
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "bf16"):
            logits = network(batch.inputs)
        loss = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), plan.clip)
        optimiser.step()
        loss.item()
    trained = time.perf_counter()
    source.measure(network)
    return trained - began, time.perf_counter() - trained


def ready(seconds: float) -> None:
    """Let every process of a pool begin."""
    time.sleep(seconds)


def barely(plan: Plan, data: Path, workers: int) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of all bare loops, and of the two parts of each."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(ready, [1.0] * workers, chunksize=1)
        began = time.perf_counter()
        parts = pool.starmap(bare, [(plan, run, data) for run in plan.runs()], chunksize=1)
        return time.perf_counter() - began, parts


def main(keep: bool, quick: bool = False) -> None:
    """Carry out a study and bare loops of the same runs, and print the ratio."""
    plan = settle(Plan(schemes=SCHEMES, threads=1, **({"steps": 100} if quick else {})))
    with tempfile.TemporaryDirectory() as place:
        folder, workers = Folder(Path(place) / "study"), cores()
        source = source_of(plan)(plan, folder.data)
        source.prepare(lambda what: None)
        before, parts = barely(plan, folder.data, workers)
        began = time.perf_counter()
        conduct(plan, folder.path, Local(workers), "./dev bench study", Silent())
        studied = time.perf_counter() - began
        after, more_parts = barely(plan, folder.data, workers)
        began = time.perf_counter()
        pace = measured(folder, plan.runs(), workers)
        paced = time.perf_counter() - began
    parts, plain = parts + more_parts, (before + after) / 2
    count, measuring = len(plan.runs()), sum(part for _, part in parts) / sum(sum(both) for both in parts)
    ratio = plain / studied
    print(f"\n{count} runs of {plan.steps} steps, {workers} at a time, one thread each")
    print(f"{'runs an hour, study':46}{3600 * count / studied:8.1f}")
    print(f"{'runs an hour, bare loops':46}{3600 * count / plain:8.1f}   of which measuring {measuring:.0%}")
    both = f"by those before it {before / studied:.3f}, after it {after / studied:.3f}"
    print(f"{'study / bare loops':46}{ratio:8.3f}   goal: {GOAL}; {both}")
    print(f"{'trials of the pace, once a study [s]':46}{paced:8.1f}   {pace}")
    if keep:
        found = {"runs_an_hour": 3600 * count / studied, "bare_runs_an_hour": 3600 * count / plain, "ratio": ratio}
        found |= {"ratio_before": before / studied, "ratio_after": after / studied}
        more = {"steps": plan.steps, "workers": workers, "measuring_share": measuring}
        print(save("study", {**found, **more, "trial_seconds": paced, "pace": pace.about}))


if __name__ == "__main__":
    main(False)
