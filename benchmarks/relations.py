"""Which scheme learns which relation: small decoders, trained from random weights on one task each.

`./dev bench --save relations` trains a model for each relation, scheme and seed, about an hour on one core, and
resumes after an interruption. For each model: the share of answers that are right in each held-out sequence of the
trained length, the same in the course of training, and the mean at two, four and eight times that length.
"""

import math
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from benchmarks.harness.saving import Unfinished, save
from ordinate import Decoder, Shape
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task
from ordinate.data.tasks.copy import Copy
from ordinate.data.tasks.counting import Counting
from ordinate.data.tasks.nth import Nth
from ordinate.data.tasks.previous import Previous
from ordinate.data.tasks.reverse import Reverse
from ordinate.data.tasks.same_distance import SameDistance
from ordinate.data.tasks.sorting import Sorting

# each with the steps of training, the same for all schemes; 8 to 16 symbols and answers each
RELATIONS: dict[str, tuple[Task, int]] = {
    "previous token": (Previous(length=16, symbols=16), 300),
    "same distance": (SameDistance(length=16, distances=3, symbols=16), 600),
    "first symbol": (Nth(count=12, places=1, questions=4, symbols=16), 300),
    "n-th symbol": (Nth(count=8, places=8, questions=8, symbols=16), 600),
    "counting": (Counting(count=16, kinds=4, most=6, symbols=32), 600),
    "copying": (Copy(count=8, symbols=16), 300),
    "reversal": (Reverse(count=8, symbols=16), 600),
    "sorting": (Sorting(count=8, symbols=80), 600),
}
SCHEMES = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
SEEDS, WARM_UP, BATCH, RATE = 3, 50, 32, 2e-3
WIDTH, LAYERS, HEADS = 64, 2, 4
# the standard deviation of token embeddings that a study uses
EMBEDDING_STD = 0.02
EVERY, WATCHED, HELD_OUT, LONGER = 25, 16, 128, {2: 64, 4: 32, 8: 16}
# no generator of training has these seeds
WATCHED_SEED, HELD_OUT_SEED = 1000, 2000


def main(keep: bool, quick: bool = False) -> None:
    """Train all models, and print the accuracies of each; with `quick` for a few steps of one seed only."""
    torch.set_num_threads(1)
    unfinished = Unfinished("relations")
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {one: [] for one in SCHEMES} for name in RELATIONS}
    for seed in range(1 if quick else SEEDS):
        for relation, (task, steps) in RELATIONS.items():
            for scheme in SCHEMES:
                row = None if quick else unfinished.get(relation, scheme, seed)
                if row is None:
                    row = measure(task, scheme, seed, EVERY if quick else steps)
                    if not quick:
                        unfinished.put(relation, scheme, seed, rows=row)
                found[relation][scheme].append(row)
                print(f"{relation}, {scheme}, seed {seed}: {row['accuracy']}", flush=True)
    if keep and not quick:
        print(save("relations", {"about": about(), "relations": found, **named(found)}))
        unfinished.forget()


def named(found: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, dict[str, Any]]:
    """Return the accuracy of each relation and scheme at the trained length, with a 95 % t interval over seeds."""
    numbers = {}
    for relation, by_scheme in found.items():
        for scheme, rows in by_scheme.items():
            values = np.array([row["accuracy"]["1"] for row in rows])
            half = stats.t.ppf(0.975, max(len(values) - 1, 1)) * stats.sem(values) if len(values) > 1 else np.nan
            low, high = np.clip([values.mean() - half, values.mean() + half], 0, 1).tolist()
            numbers[f"{relation}, {scheme}"] = {"value": float(values.mean()), "low": low, "high": high, "unit": ""}
    return numbers


def about() -> dict[str, Any]:
    """Return what the models were trained with."""
    tasks = {
        name: {"task": str(task), "length": task.length, "baseline": task.baseline_accuracy, "steps": steps}
        for name, (task, steps) in RELATIONS.items()
    }
    return {
        "relations": tasks,
        "every": EVERY,
        "batch": BATCH,
        "rate": RATE,
        "width": WIDTH,
        "layers": LAYERS,
        "heads": HEADS,
        "seeds": SEEDS,
        "watched": WATCHED,
        "sequences": {1: HELD_OUT, **LONGER},
    }


def measure(task: Task, scheme: str, seed: int, steps: int) -> dict[str, Any]:
    """Train a model; return its accuracies by length, in each sequence and in the course of training."""
    torch.manual_seed(seed)
    shape = Shape(
        vocabulary=task.vocabulary,
        width=WIDTH,
        heads=HEADS,
        layers=LAYERS,
        scheme=scheme,
        max_length=task.longer(max(LONGER)).length,
        embedding_std=EMBEDDING_STD,
        embedding_scale=EMBEDDING_STD * math.sqrt(WIDTH),
    )
    model = Decoder(shape)
    curve = train(model, task, seed, steps)
    shares = right(model, held_out(task, HELD_OUT))
    longer = {str(times): right(model, held_out(task.longer(times), count)) for times, count in LONGER.items()}
    means = {"1": shares} | longer
    return {
        "accuracy": {times: round(float(each.mean()), 5) for times, each in means.items()},
        "curve": [round(value, 4) for value in curve],
        "sequences": [round(value, 4) for value in shares.tolist()],
    }


def train(model: Decoder, task: Task, seed: int, steps: int) -> list[float]:
    """Train with AdamW, warm-up and a cosine to zero; return the accuracy after each EVERY steps."""
    drawn, watched = torch.Generator().manual_seed(seed), held_out(task, WATCHED, WATCHED_SEED)
    optimiser = torch.optim.AdamW(model.parameters(), RATE)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    curve = []
    for step in range(1, steps + 1):
        batch = task.sample(drawn, BATCH)
        logits = model(batch.inputs).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORE_INDEX)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
        if step % EVERY == 0:
            curve.append(float(right(model, watched).mean()))
    return curve


def held_out(task: Task, count: int, seed: int = HELD_OUT_SEED) -> Batch:
    """Draw sequences that are the same for all models."""
    return task.sample(torch.Generator().manual_seed(seed), count)


@torch.no_grad()
def right(model: Decoder, batch: Batch) -> Tensor:
    """Return the share of answers of each sequence that are right."""
    asked = batch.targets != IGNORE_INDEX
    correct = (model(batch.inputs).argmax(-1) == batch.targets) & asked
    return correct.double().sum(1) / asked.sum(1)
