"""Evaluation of language models on held-out text: token losses, by document, by position and under shuffling."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

# tokens per forward pass
TOKENS_PER_FORWARD = 16_384


@dataclass(frozen=True, eq=False)
class EvaluationText:
    """Held-out sequences of equal length, evaluated independently of each other.

    Args:
        tokens: the sequences, one token longer than the input, so that every position has a next-token target.
        documents: document index of each sequence.
        names: document names.
        bytes: number of text bytes of each token of the vocabulary.
    """

    tokens: Int[Tensor, "pieces length_and_one"]
    documents: Int[Tensor, "pieces"]
    names: Sequence[str]
    bytes: Int[Tensor, "vocabulary"]

    @property
    def length(self) -> int:
        """Input tokens of each sequence."""
        return self.tokens.shape[1] - 1

    def split_to(self, length: int) -> "EvaluationText":
        """Split into shorter sequences: the same targets are predicted from less context."""
        parts = self.length // length
        starts = torch.arange(parts) * length
        index = (starts[:, None] + torch.arange(length + 1)).flatten()
        tokens = self.tokens[:, index].reshape(-1, length + 1)
        return EvaluationText(tokens, self.documents.repeat_interleave(parts), self.names, self.bytes)

    def head(self, count: int) -> "EvaluationText":
        """Return the first `count` sequences."""
        return EvaluationText(self.tokens[:count], self.documents[:count], self.names, self.bytes)

    def shuffled(self, window: int, generator: torch.Generator) -> "EvaluationText":
        """Shuffle the tokens within consecutive windows of this size; the last token, a target only, stays.

        A shorter last window is shuffled as well.
        """
        pieces, length = self.tokens.shape[0], self.length
        noise = torch.rand(pieces, length, generator=generator)
        # sorting by window index + noise in [0, 1) permutes within each window
        order = (noise + torch.arange(length) // window).argsort(1)
        tokens = torch.cat([self.tokens[:, :length].gather(1, order), self.tokens[:, length:]], 1)
        return EvaluationText(tokens, self.documents, self.names, self.bytes)


def next_token_losses(model: nn.Module, text: EvaluationText, precision: str) -> Float[Tensor, "pieces length"]:
    """Return the next-token cross-entropy at each position [nats].

    Args:
        model: returns next-token logits at each position.
        text: the sequences.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return torch.cat([_nats(model, rows, precision) for rows in _chunks(text)])
    finally:
        model.train(training)


def losses_by_document(
    nats: Float[Tensor, "pieces length"], text: EvaluationText
) -> list[dict[str, str | int | float]]:
    """Sum tokens, bytes and cross-entropy [nats] over each document."""
    targets = text.tokens[:, 1:]
    size = text.bytes[targets].sum(1)
    rows = []
    for document in text.documents.unique().tolist():
        own = text.documents == document
        rows.append(
            {
                "name": text.names[document],
                "tokens": int(own.sum()) * text.length,
                "bytes": int(size[own].sum()),
                "nats": float(nats[own].double().sum()),
            }
        )
    return rows


def losses_by_position(nats: Float[Tensor, "pieces length"], bins: int) -> tuple[list[int], list[float]]:
    """Return the mean loss [nats per token] by position: the first position of each bin, and the bin's mean."""
    length = nats.shape[1]
    edges = np.unique(np.linspace(0, length, min(bins, length) + 1).round().astype(int))
    means = [float(nats[:, a:b].double().mean()) for a, b in pairwise(edges)]
    return edges[:-1].tolist(), means


def shuffle_curve(
    model: nn.Module, text: EvaluationText, precision: str, generator: torch.Generator
) -> list[dict[str, int | float]]:
    """Return the mean loss [nats per token] with tokens shuffled within windows of 1 (unshuffled), 2, 4, 8 .. length.

    The curve is flat for a model that ignores token order.
    """
    return [
        {
            "window": window,
            "nats_per_token": float(
                next_token_losses(model, text.shuffled(window, generator), precision).double().mean()
            ),
        }
        for window in shuffle_windows(text.length)
    ]


def shuffle_windows(length: int) -> list[int]:
    """Return the shuffle windows: powers of two up to the length, and the length itself [tokens]."""
    windows = [2**power for power in range(int(math.log2(length)) + 1)]
    return windows if windows[-1] == length else [*windows, length]


def precision_context(precision: str, device: str) -> AbstractContextManager[object]:
    """Return the autocast context: bfloat16 matrix products for `bf16`, none for `fp32`."""
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


def _chunks(text: EvaluationText) -> Iterator[Tensor]:
    return iter(text.tokens.split(max(1, TOKENS_PER_FORWARD // text.length)))


def _nats(model: nn.Module, rows: Tensor, precision: str) -> Tensor:
    device = next(model.parameters()).device
    rows = rows.to(device)
    with precision_context(precision, device.type):
        logits = model(rows[:, :-1])
    nats = nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return nats.view(rows.shape[0], -1).cpu()
