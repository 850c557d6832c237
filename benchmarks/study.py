"""Throughput of a study in runs per hour, compared with bare PyTorch loops that train and evaluate the same models.

The bare loops are a pool of as many worker processes as the study has, started beforehand, with one run after the
other: no checkpoints, no logs, no results. The study starts a process per run and writes all of those. The loops run
before and after the study, since the speed of a machine varies over time; their mean counts.
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from benchmarks.harness.device import Device
from benchmarks.harness.saving import save, save_on
from ordinate.core.progress import ignore
from ordinate.core.seeds import derive_seed
from ordinate.study.data_source import source_of
from ordinate.study.device_allocation import max_parallel_runs
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.initial_model import initial_model
from ordinate.study.model_sizing import shape_of
from ordinate.study.plan import Plan, Run
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.study.thread_autotuning import measure_threads
from ordinate.training.optimiser import learning_rate_at, make_optimiser
from ordinate.training.settings import Hardware

SCHEMES = ("rope", "alibi", "none", "sinusoidal")
GOAL = 0.85


def bare(plan: Plan, run: Run, data: Path) -> tuple[float, float]:
    """Seconds of training and of evaluation in a minimal loop."""
    torch.set_num_threads(1)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    source = source_of(plan)(plan, data)
    task = source.task
    torch.manual_seed(run.seed)
    network = initial_model(plan, run, shape_of(plan, run, task.vocabulary)).to(kind)
    began = time.perf_counter()
    optimiser = make_optimiser(network, plan.learning_rate, plan.weight_decay)
    for step in range(plan.steps):
        batch = task.sample(torch.Generator().manual_seed(derive_seed(run.seed, "batch", step)), plan.batch)
        for group in optimiser.param_groups:
            rate = learning_rate_at(step, peak=plan.learning_rate, warmup_steps=plan.warmup_steps, steps=plan.steps)
            group["lr"] = rate
        with torch.autocast(kind, torch.bfloat16, enabled=plan.precision == "bf16"):
            logits = network(batch.inputs.to(kind))
        loss = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten().to(kind))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), plan.grad_clip)
        optimiser.step()
        loss.item()
    trained = time.perf_counter()
    source.measure(network)
    return trained - began, time.perf_counter() - trained


def ready(seconds: float) -> None:
    """Occupy a worker, so that every process of the pool starts."""
    time.sleep(seconds)


def barely(plan: Plan, data: Path, workers: int) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of all bare loops, and of training and evaluation of each."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(ready, [1.0] * workers, chunksize=1)
        began = time.perf_counter()
        parts = pool.starmap(bare, [(plan, run, data) for run in plan.runs()], chunksize=1)
        return time.perf_counter() - began, parts


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Run a study and bare loops of the same runs, and print the ratio. Both take the GPU if there is one."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in (None, kind):
        raise ValueError(f"a study trains on {kind} here; got --device {device}; leave it out, or hide the GPUs")
    plan = resolve(Plan(schemes=SCHEMES, threads=1, **({"steps": 100} if quick else {})))
    with tempfile.TemporaryDirectory() as place:
        folder, workers = StudyFolder(Path(place) / "study"), max_parallel_runs(Hardware(), 1)
        source = source_of(plan)(plan, folder.data)
        source.prepare(ignore)
        before, parts = barely(plan, folder.data, workers)
        began = time.perf_counter()
        run_study(plan, folder.path, LocalExecutor(workers), "./dev bench study", ignore)
        studied = time.perf_counter() - began
        after, more_parts = barely(plan, folder.data, workers)
        began = time.perf_counter()
        pace = measure_threads(folder, plan.runs(), workers)
        paced = time.perf_counter() - began
    parts, plain = parts + more_parts, (before + after) / 2
    count, measuring = len(plan.runs()), sum(part for _, part in parts) / sum(sum(both) for both in parts)
    ratio = plain / studied
    print(f"\n{count} runs of {plan.steps} steps, {workers} at a time, one thread each")
    print(f"{'runs per hour, study':46}{3600 * count / studied:8.1f}")
    print(f"{'runs per hour, bare loops':46}{3600 * count / plain:8.1f}   of which evaluation {measuring:.0%}")
    both = f"against the loops before {before / studied:.3f}, after {after / studied:.3f}"
    print(f"{'study / bare loops':46}{ratio:8.3f}   goal: {GOAL}; {both}")
    print(f"{'tuning of threads, once per study [s]':46}{paced:8.1f}   {pace}")
    if keep:
        found = {"runs_an_hour": 3600 * count / studied, "bare_runs_an_hour": 3600 * count / plain, "ratio": ratio}
        found |= {"ratio_before": before / studied, "ratio_after": after / studied}
        more = {"steps": plan.steps, "workers": workers, "measuring_share": measuring}
        results = {**found, **more, "trial_seconds": paced, "pace": pace.as_record}
        print(save("study", results) if device is None else save_on(Device(device), "study", results))


if __name__ == "__main__":
    main(False)
