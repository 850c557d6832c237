"""Everything that a study measures of a trained model."""

import math
import sys
from typing import Any, cast

import numpy as np
import torch

from ordinate.data.store import TokenStore
from ordinate.data.windows import segments
from ordinate.models.block import Block
from ordinate.models.decoder import Decoder
from ordinate.models.generate import generate
from ordinate.study.about import processor
from ordinate.study.plan import Plan
from ordinate.study.statistics import bits_per_byte_interval
from ordinate.training.evaluate import Text, by_document, by_place, losses, order_curve

PLACES = 32
PROMPT = 64


def measure(model: Decoder, store: TokenStore, plan: Plan) -> dict[str, Any]:
    """The sections of a result that need the trained model: lengths, positions, order and samples."""
    text = held_out(store, plan)
    lengths, positions = _lengths(model, text, plan)
    trained = text.cut(plan.length).first(plan.shuffled)
    order = order_curve(model, trained, plan.precision, torch.Generator().manual_seed(0))
    return {
        "lengths": lengths,
        "positions": {**positions, "trained_length": plan.length},
        "order": order,
        "samples": _samples(model, store, text, plan),
    }


def held_out(store: TokenStore, plan: Plan) -> Text:
    """Held-out pieces of the longest planned length that some document has.

    Raises:
        ValueError: no held-out document is as long as one window.
    """
    for multiple in sorted(plan.multiples, reverse=True):
        found = segments(store, multiple * plan.length, plan.windows)
        if found:
            names = sorted({segment.name for segment in found})
            return Text(
                torch.from_numpy(np.stack([segment.tokens for segment in found])),
                torch.tensor([names.index(segment.name) for segment in found]),
                names,
                torch.from_numpy(store.tokenizer.byte_lengths.astype(np.int64)),
            )
    raise ValueError(
        f"some held-out document must be longer than the trained length; none has {plan.length + 1} tokens; "
        "give more text, or a smaller --length"
    )


def peak_memory() -> int | None:
    """The most memory that this process has held [bytes]; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_name() -> str:
    """What this process computes on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()


def _lengths(model: Decoder, text: Text, plan: Plan) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows, positions = [], {}
    for multiple in sorted(plan.multiples):
        length = multiple * plan.length
        if length > text.length:
            reason = f"no held-out document has {length + 1} tokens"
            rows.append({"length": length, "times": multiple, "nats_per_token": None, "reason": reason})
            continue
        pieces = text.cut(length)
        nats = losses(model, pieces, plan.precision)
        documents = by_document(nats, pieces)
        total = sum(float(row["nats"]) for row in documents)
        rows.append(
            {
                "length": length,
                "times": multiple,
                "nats_per_token": float(nats.double().mean()),
                "bits_per_byte": total / math.log(2) / sum(int(row["bytes"]) for row in documents),
                "interval": bits_per_byte_interval(documents),
                "documents": documents,
            }
        )
        places, means = by_place(nats, PLACES)
        positions = {"position": places, "nats_per_token": means}
    return rows, positions


def _samples(model: Decoder, store: TokenStore, text: Text, plan: Plan) -> list[dict[str, str]]:
    if not all(cast(Block, block).mixer.streams for block in model.blocks):
        # it cannot go on from what it has read
        return []
    generator = torch.Generator().manual_seed(0)
    spread = np.linspace(0, len(text.tokens) - 1, plan.samples).round().astype(int)
    samples = []
    for index in spread.tolist():
        prompt = text.tokens[index, : min(PROMPT, plan.longest // 2)]
        room = min(plan.sample_tokens, plan.longest - len(prompt))
        written = generate(model, prompt[None], room, temperature=0.8, generator=generator)
        ids = [int(token) for token in written]
        samples.append({"prompt": store.tokenizer.decode(prompt.tolist()), "text": store.tokenizer.decode(ids)})
    return samples
