"""Loss on texts longer than those of training, in two ways: from earlier context, or from fewer early tokens."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.shapes import Ids, Logits
from ordinate.replications.result import Control

# tokens of a text in training, and of the longest that is read afterwards
TRAINED, LONGEST = 64, 512
LENGTHS = (64, 128, 256, 512)
TARGETS, STRIDE = 16, 4
# of the planted models
SYMBOLS = 16

Model = Callable[[Ids], Logits]


def split_name(length: int) -> str:
    """Name of the loss of texts split into pieces of this length."""
    return f"split {length}"


def scores(model: Model, texts: Ids) -> dict[str, float]:
    """Return the loss of texts split to each length, and the gain of the same tokens from a longer context [nats].

    Args:
        model: gives the logits of each place.
        texts: rows of 513 tokens.
    """
    inputs, targets = texts[:, :-1], texts[:, 1:]
    split = {n: _nats(model, inputs.reshape(-1, n), targets.reshape(-1, n)) for n in LENGTHS}
    found = {split_name(length): float(nats.mean()) for length, nats in split.items()}
    # every fourth of the last 64 tokens, alone at the end of a short window
    places = torch.arange(LONGEST - 1, LONGEST - 1 - STRIDE * TARGETS, -STRIDE)
    windows = inputs.unfold(1, TRAINED, 1)[:, places - TRAINED + 1].reshape(-1, TRAINED)
    short = _nats(model, windows, targets.unfold(1, TRAINED, 1)[:, places - TRAINED + 1].reshape(-1, TRAINED))[:, -1]
    return {**found, "context": float(split[LONGEST][:, places].mean() - short.mean())}


def _nats(model: Model, inputs: Ids, targets: Ids) -> Float[Tensor, "rows tokens"]:
    return nn.functional.cross_entropy(model(inputs).mT, targets, reduction="none")


class Planted(nn.Module):
    """Knows that each symbol is followed by the next, but only from a place on; before it guesses uniformly."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def forward(self, ids: Ids) -> Logits:
        """Return the logits of each place."""
        sure = nn.functional.one_hot((ids + 1) % SYMBOLS, SYMBOLS) * 100.0
        return sure * (torch.arange(ids.shape[1]) >= self.first)[:, None]


def counting_rows(seed: int) -> Ids:
    """Rows that count: each symbol is followed by the next one."""
    starts = torch.randint(SYMBOLS, (2, 1), generator=torch.Generator().manual_seed(seed))
    return (starts + torch.arange(LONGEST + 1)) % SYMBOLS


def score_controls(seed: int) -> Sequence[Control]:
    """Return the scores of planted models, whose gains are known, as controls."""
    rows = counting_rows(seed)
    early, far = scores(Planted(32), rows), scores(Planted(128), rows)
    gain = math.log(SYMBOLS) * (32 / LONGEST - 32 / TRAINED)
    return (
        Control(name="split gain of a model that is blind for its first 32 tokens", expected=gain,
                got=early[split_name(LONGEST)] - early[split_name(TRAINED)], tolerance=1e-5),
        Control(name="context gain of that model, which reads no farther", expected=0.0, got=early["context"],
                tolerance=1e-5),
        Control(name="context gain of a model that needs 128 tokens", expected=-math.log(SYMBOLS),
                got=far["context"], tolerance=1e-5),
    )  # fmt: skip
