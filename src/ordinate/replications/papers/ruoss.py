"""Ruoss et al. 2023: random positions in training let models read longer inputs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.data.task import Task
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.replications.varied_lengths import LONGER, SYMBOLS, TRAINED, VariedLengths, accuracy, ascending
from ordinate.schemes.randomized import Randomized

# positions are drawn from so many, twice those of the longest strings; draws of the constructed claim
RANGE, DRAWS = 4 * LONGER, 400
STEPS, BATCH, LEARNING_RATE = 400, 32, 5e-3
# of strings as long as in training
LEAST_ACCURACY = 0.95
SHAPE = Shape(
    vocabulary=SYMBOLS + 1, width=64, layers=2, heads=4, max_length=RANGE, tie_embeddings=False, embedding_scale=0.02
)
SCHEMES = {
    "sinusoidal": "sinusoidal",
    "randomized sinusoidal": f"randomized:max_length={RANGE}+sinusoidal",
    "rope": "rope",
    "randomized rope": f"randomized:max_length={RANGE}+rope",
}


class Ruoss(TrainedReplication):
    """Random positions: ids of tokens are drawn from a longer range and sorted, so that all of it is trained.

        accuracy: share of symbols given rightly after the true ones before, strings twice as long as in training

    New positions are drawn in evaluation too, one draw for all strings, as in the authors' code.

    Source: Ruoss et al. 2023, https://arxiv.org/abs/2305.16843, sections 3 and 4, and its repository.
    Departs: decoders, and one of its fifteen tasks, sorting; strings of 10 symbols and 20, a range of 80 positions,
        width 64, 2 layers, 400 steps. The paper has the best of 10 seeds and 3 learning rates; here all seeds count.
    """

    paper = Paper(
        authors="Ruoss et al.", year=2023, arxiv="2305.16843",
        title="Randomized Positional Encodings Boost Length Generalization of Transformers",
    )  # fmt: skip
    order = 15
    arms = tuple(
        Arm(name, replace(SHAPE, scheme=scheme), STEPS, BATCH, LEARNING_RATE) for name, scheme in SCHEMES.items()
    )
    claims = (
        Claim(
            name="all are trained",
            text="Training on short inputs with random positions trains all positions of long ones.",
            tested="identity",
            quantity=f"share of the positions that strings of {LONGER} symbols draw that occur in {DRAWS} batches of "
            f"at most {TRAINED}",
            side="equal",
            expected=1.0,
            size=0.0,
            null="the same with positions from 0, of those that such strings have",
        ),
        Claim(
            name="sinusoidal",
            text="Random positions let models with sinusoidal positions sort longer strings than in training.",
            tested="sign",
            quantity=f"accuracy on {LONGER} symbols, random positions minus those from 0",
            side="above",
            size=0.02,
            null="0: as well",
            printed="0.12, mean of 15 tasks",
            checked=False,
            needs="training",
        ),
        Claim(
            name="rotary",
            text="They let models with RoPE do so.",
            tested="sign",
            quantity=f"accuracy on {LONGER} symbols, random positions minus those from 0",
            side="above",
            size=0.02,
            null="0: as well",
            needs="training",
        ),
        Claim(
            name="no cost",
            text="Strings as long as in training are sorted as well as without.",
            tested="number",
            quantity=f"accuracy on {TRAINED} symbols, random sinusoidal positions minus those from 0",
            side="equal",
            expected=0.0,
            size=0.01,
            null=f"the same on {LONGER} symbols",
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Task:
        return VariedLengths(ascending)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        with drawing(model):
            return {name: accuracy(model, length, ascending) for name, length in
                    {"trained": TRAINED, "longer": LONGER}.items()}  # fmt: skip

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers["trained"] > LEAST_ACCURACY

    def controls(self, seed: int) -> Sequence[Control]:
        return (
            Control(name="share of positions trained by one draw of as many as there are", expected=1.0,
                    got=trained_share(Randomized(max_length=2 * TRAINED), [2 * TRAINED], seed), tolerance=0.0),
            Control(name="share trained by one draw of a tenth of them", expected=0.1,
                    got=trained_share(Randomized(max_length=20 * TRAINED), [2 * TRAINED], seed), tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        counts = torch.randint(1, TRAINED + 1, (DRAWS,), generator=torch.Generator().manual_seed(subject.seed))
        random = trained_share(Randomized(max_length=RANGE), (2 * counts).tolist(), subject.seed)
        found = {"all are trained": Estimate(name="share", value=random, null=TRAINED / LONGER)}
        runs = subject.runs
        if runs is None:
            return found
        gains = {
            (kind, length): runs.numbers(f"randomized {kind}", length) - runs.numbers(kind, length)
            for kind in ("sinusoidal", "rope")
            for length in ("trained", "longer")
        }
        wide = gains["sinusoidal", "longer"]
        return found | {
            "sinusoidal": over_pairs("difference", wide, unit=""),
            "rotary": over_pairs("difference", gains["rope", "longer"], unit=""),
            "no cost": over_pairs("difference", gains["sinusoidal", "trained"], wide, unit=""),
        }


@contextmanager
def drawing(model: nn.Module) -> Iterator[None]:
    """Context manager: random positions are drawn in evaluation as well, the same in each call."""
    schemes = [module for module in model.modules() if isinstance(module, Randomized)]
    before = [scheme.training for scheme in schemes]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            for scheme in schemes:
                scheme.train()
            yield
        finally:
            for scheme, mode in zip(schemes, before, strict=True):
                scheme.train(mode)


def trained_share(scheme: Randomized, tokens: Sequence[int], seed: int) -> float:
    """Return the share of the positions of a scheme that occur in training.

    Args:
        scheme: draws the positions.
        tokens: length of each batch.
        seed: of the draws.

    Raises:
        ValueError: a scheme without a largest position.
    """
    if scheme.max_length is None:
        raise ValueError("a share of all positions needs a scheme with max_length; got none; give one")
    seen = torch.zeros(scheme.max_length, dtype=torch.bool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for count in tokens:
            seen[scheme.train().remap_positions(Geometry.causal(count)).q_pos.flatten()] = True
    return float(seen.double().mean())
