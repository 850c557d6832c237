"""Evaluate a masked-token model: cross-entropy and accuracy by length, and with shuffled context."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordinate.data.tasks.masked import Masked
from ordinate.data.token_store import TokenStore
from ordinate.evaluation.losses import shuffle_windows
from ordinate.evaluation.masked_text import MaskedText, mask_tokens
from ordinate.evaluation.prediction import has_target, token_losses
from ordinate.evaluation.quantity import BITS_PER_MASKED_TOKEN
from ordinate.evaluation.settings import EvaluationSettings
from ordinate.evaluation.statistics import accuracy_interval, nats_to_bits
from ordinate.evaluation.text import held_out_text


def evaluate_masked(model: nn.Module, store: TokenStore, task: Masked, plan: EvaluationSettings) -> dict[str, Any]:
    """Evaluate on held-out text; returns `lengths` and `order`.

    The same tokens are masked at every length and in every order, so that losses are comparable. All of them are
    replaced by the mask token: random replacement and keeping, as in training, are not used.
    """
    hidden = mask_tokens(
        held_out_text(store, plan), task.mlm_probability, task.mask, torch.Generator().manual_seed(0)
    )
    return {
        "lengths": [_length(model, hidden, plan, times) for times in sorted(plan.eval_length_multiples)],
        "order": _order(model, hidden.split_to(plan.length).head(plan.shuffle_samples), plan),
    }


def _length(model: nn.Module, hidden: MaskedText, plan: EvaluationSettings, times: int) -> dict[str, Any]:
    length = times * plan.length
    row: dict[str, Any] = {"times": times, "length": length, "nats_per_token": None}
    if length > hidden.text.length:
        return {**row, "reason": f"no held-out document has {length + 1} tokens"}
    pieces = hidden.split_to(length)
    batch = pieces.batch()
    nats, right = token_losses(model, batch, plan.precision)
    documents = _documents(pieces, has_target(batch), nats, right)
    amounts, sizes, rights = (
        np.array([row[name] for row in documents], float) for name in ("nats", "asked", "right")
    )
    bits = nats_to_bits(amounts)[None]
    return {
        **row,
        "nats_per_token": float(amounts.sum() / sizes.sum()),
        "bits_per_token": BITS_PER_MASKED_TOKEN.value(bits, sizes),
        "interval": BITS_PER_MASKED_TOKEN.interval(bits, sizes),
        "accuracy": float(rights.sum() / sizes.sum()),
        "accuracy_interval": accuracy_interval(rights, sizes),
        "documents": documents,
    }


def _documents(pieces: MaskedText, asked: Tensor, nats: Tensor, right: Tensor) -> list[dict[str, Any]]:
    """Number of masked tokens, cross-entropy [nats] and correct predictions of each document."""
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


def _order(model: nn.Module, pieces: MaskedText, plan: EvaluationSettings) -> list[dict[str, Any]]:
    """Mean loss [nats per masked token] with the others shuffled within windows of 1 (unshuffled), 2, 4 .."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for window in shuffle_windows(pieces.text.length):
        batch = pieces.batch(pieces.shuffle(window, generator))
        nats, _ = token_losses(model, batch, plan.precision)
        rows.append({"window": window, "nats_per_token": float(nats.double().sum() / has_target(batch).sum())})
    return rows
