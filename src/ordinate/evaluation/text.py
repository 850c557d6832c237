"""Evaluate a causal language model: cross-entropy by length and position, with shuffled context, and samples."""

import math
from typing import Any, cast

import numpy as np
import torch

from ordinate.data.heldout_segments import segments
from ordinate.data.token_store import TokenStore
from ordinate.evaluation.losses import (
    EvaluationText,
    losses_by_document,
    losses_by_position,
    next_token_losses,
    shuffle_curve,
)
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.settings import EvaluationSettings
from ordinate.models._generate import generate
from ordinate.models.block import Block
from ordinate.models.decoder import Decoder

# bins of the loss by position
POSITION_BINS = 32
# longest prompt of a generated sample [tokens]
MAX_PROMPT = 64


def evaluate_text(model: Decoder, store: TokenStore, plan: EvaluationSettings) -> dict[str, Any]:
    """Evaluate on held-out text; returns `lengths`, `positions`, `order` and `samples`."""
    text = held_out_text(store, plan, bytes_known=True)
    lengths, positions = _lengths(model, text, plan)
    trained = text.split_to(plan.length).head(plan.shuffle_samples)
    order = shuffle_curve(model, trained, plan.precision, torch.Generator().manual_seed(0))
    return {
        "lengths": lengths,
        "positions": {**positions, "trained_length": plan.length},
        "order": order,
        "samples": _samples(model, store, text, plan),
    }


def held_out_text(store: TokenStore, plan: EvaluationSettings, *, bytes_known: bool = False) -> EvaluationText:
    """Return held-out sequences of the longest planned evaluation length for which there are documents.

    Args:
        store: the text.
        plan: lengths, and how many sequences.
        bytes_known: as in `ordinate.data.heldout_segments.segments`.

    Raises:
        ValueError: no held-out document is long enough for the shortest evaluation length.
    """
    for multiple in sorted(plan.eval_length_multiples, reverse=True):
        found = segments(store, multiple * plan.length, plan.eval_samples, bytes_known=bytes_known)
        if found:
            names = sorted({segment.name for segment in found})
            return EvaluationText(
                torch.from_numpy(np.stack([segment.tokens for segment in found])),
                torch.tensor([names.index(segment.name) for segment in found]),
                names,
                torch.from_numpy(store.tokenizer.byte_lengths.astype(np.int64)),
            )
    raise ValueError(
        f"some held-out document must be longer than the training length; none has {plan.length + 1} tokens; "
        "give more text, or a smaller --length"
    )


def _lengths(
    model: Decoder, text: EvaluationText, plan: EvaluationSettings
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows, positions = [], {}
    for multiple in sorted(plan.eval_length_multiples):
        length = multiple * plan.length
        if length > text.length:
            reason = f"no held-out document has {length + 1} tokens"
            rows.append({"length": length, "times": multiple, "nats_per_token": None, "reason": reason})
            continue
        pieces = text.split_to(length)
        nats = next_token_losses(model, pieces, plan.precision)
        documents = losses_by_document(nats, pieces)
        total = sum(float(row["nats"]) for row in documents)
        rows.append(
            {
                "length": length,
                "times": multiple,
                "nats_per_token": float(nats.double().mean()),
                "bits_per_byte": total / math.log(2) / sum(int(row["bytes"]) for row in documents),
                "documents": documents,
            }
        )
        amounts, sizes = BITS_PER_BYTE.table(rows[-1])
        rows[-1]["interval"] = BITS_PER_BYTE.interval(amounts[None], sizes)
        places, means = losses_by_position(nats, POSITION_BINS)
        positions = {"position": places, "nats_per_token": means}
    return rows, positions


def _samples(
    model: Decoder, store: TokenStore, text: EvaluationText, plan: EvaluationSettings
) -> list[dict[str, str]]:
    if not all(mixer.supports_cache for block in model.blocks for mixer in cast(Block, block).mixers):
        # a mixer without a cache cannot continue a prompt
        return []
    # the same prompts and random numbers for every model
    generator = torch.Generator().manual_seed(0)
    spread = np.linspace(0, len(text.tokens) - 1, plan.generated_texts).round().astype(int)
    samples = []
    for index in spread.tolist():
        prompt = text.tokens[index, : min(MAX_PROMPT, plan.longest_length // 2)]
        room = min(plan.generated_tokens, plan.longest_length - len(prompt))
        written = generate(model, prompt[None], room, temperature=0.8, generator=generator)
        ids = [int(token) for token in written]
        samples.append({"prompt": store.tokenizer.decode(prompt.tolist()), "text": store.tokenizer.decode(ids)})
    return samples
