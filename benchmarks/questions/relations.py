"""Which scheme learns to look up the n-th symbol: two layers, trained from random weights on the task `nth`."""

import torch

from benchmarks.questions._number import Numbers, averaged
from ordinate import Decoder, Shape
from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.nth import Nth

SCHEMES, SEEDS = ("learned", "rope", "alibi"), 3
STEPS, BATCH, HELD_OUT, RATE = 500, 64, 512, 2e-3


def measure(quick: bool) -> Numbers:
    """Return the accuracy of each scheme, with an interval over seeds."""
    found: Numbers = {}
    for scheme in SCHEMES:
        shares = [accuracy(scheme, seed, 5 if quick else STEPS) for seed in range(SEEDS)]
        found[f"accuracy on the n-th symbol, {scheme}"] = averaged(shares, "share")
    return found


def accuracy(scheme: str, seed: int, steps: int) -> float:
    """Train, and return the share of held-out queries that are answered correctly."""
    task, drawn = Nth(), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    shape = Shape(vocabulary=task.vocabulary, width=64, heads=4, layers=2, scheme=scheme, max_length=task.length)
    model = Decoder(shape)
    optimiser = torch.optim.AdamW(model.parameters(), RATE)
    for _ in range(steps):
        batch = task.sample(drawn, BATCH)
        logits = model(batch.inputs).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORE_INDEX)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # no generator of training has this seed
    batch = task.sample(torch.Generator().manual_seed(SEEDS), HELD_OUT)
    asked = batch.targets != IGNORE_INDEX
    with torch.no_grad():
        return float((model(batch.inputs).argmax(-1) == batch.targets)[asked].double().mean())
