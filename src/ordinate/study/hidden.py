"""Everything that a study measures of a model that says hidden tokens."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordinate.data.store import TokenStore
from ordinate.study.measure import held_out
from ordinate.study.plan import Plan
from ordinate.study.statistics import Draws, bits, interval, resampled, share_interval
from ordinate.tasks.masked import Masked
from ordinate.training.answers import asked, told
from ordinate.training.evaluate import windows_to
from ordinate.training.hidden import Hidden, hide


def measure_hidden(model: nn.Module, store: TokenStore, task: Masked, plan: Plan) -> dict[str, Any]:
    """The sections of a result that need the trained model: lengths and order.

    The same tokens are hidden at every length and in every order, so that the same are to be said. The mask
    stands for each of them: that a few are swapped or stay is for training alone.
    """
    hidden = hide(held_out(store, plan), task.share, task.mask, torch.Generator().manual_seed(0))
    return {
        "lengths": [_length(model, hidden, plan, times) for times in sorted(plan.multiples)],
        "order": _order(model, hidden.cut(plan.length).first(plan.shuffled), plan),
    }


def _length(model: nn.Module, hidden: Hidden, plan: Plan, times: int) -> dict[str, Any]:
    length = times * plan.length
    row: dict[str, Any] = {"times": times, "length": length, "nats_per_token": None}
    if length > hidden.text.length:
        return {**row, "reason": f"no held-out document has {length + 1} tokens"}
    pieces = hidden.cut(length)
    batch = pieces.batch()
    nats, right = told(model, batch, plan.precision)
    documents = _documents(pieces, asked(batch), nats, right)
    amounts, sizes, rights = (
        np.array([row[name] for row in documents], float) for name in ("nats", "asked", "right")
    )
    drawn = resampled(bits(amounts)[None], sizes, Draws.of(len(sizes), 1))
    return {
        **row,
        "nats_per_token": float(amounts.sum() / sizes.sum()),
        "bits_per_token": float(bits(amounts).sum() / sizes.sum()),
        "interval": interval(drawn, len(sizes)),
        "accuracy": float(rights.sum() / sizes.sum()),
        "accuracy_interval": share_interval(rights, sizes),
        "documents": documents,
    }


def _documents(pieces: Hidden, asked: Tensor, nats: Tensor, right: Tensor) -> list[dict[str, Any]]:
    """Questions, surprise [nats] and right answers of each document."""
    rows = []
    for document in pieces.text.documents.unique().tolist():
        own = pieces.text.documents == document
        rows.append(
            {
                "name": pieces.text.names[document],
                "asked": int(asked[own].sum()),
                "nats": float(nats[own].double().sum()),
                "right": int(right[own].sum()),
            }
        )
    return rows


def _order(model: nn.Module, pieces: Hidden, plan: Plan) -> list[dict[str, Any]]:
    """Mean surprise [nats a hidden token] when the others are shuffled inside windows of 1 (not at all), 2, 4 .."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for window in windows_to(pieces.text.length):
        batch = pieces.batch(pieces.shuffle(window, generator))
        nats, _ = told(model, batch, plan.precision)
        rows.append({"window": window, "nats_per_token": float(nats.double().sum() / asked(batch).sum())})
    return rows
