"""What a trained language model knows of held-out text, and what it owes to order."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

# so many tokens go through the model at once
TOKENS_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Text:
    """Held-out pieces of one length, all read as if each stood alone.

    Args:
        tokens: the pieces, each one token longer than what is read, so that every place has a next token.
        documents: the document of each piece.
        names: the name of each document.
        bytes: how many bytes of text each token of the vocabulary stands for.
    """

    tokens: Int[Tensor, "pieces length_and_one"]
    documents: Int[Tensor, "pieces"]
    names: Sequence[str]
    bytes: Int[Tensor, "vocabulary"]

    @property
    def length(self) -> int:
        """Tokens that are read of each piece."""
        return self.tokens.shape[1] - 1

    def cut(self, length: int) -> "Text":
        """The same text in shorter pieces, so that the same places are predicted from less before them."""
        parts = self.length // length
        starts = torch.arange(parts) * length
        index = (starts[:, None] + torch.arange(length + 1)).flatten()
        tokens = self.tokens[:, index].reshape(-1, length + 1)
        return Text(tokens, self.documents.repeat_interleave(parts), self.names, self.bytes)

    def first(self, count: int) -> "Text":
        """The first pieces only."""
        return Text(self.tokens[:count], self.documents[:count], self.names, self.bytes)

    def shuffled(self, window: int, generator: torch.Generator) -> "Text":
        """The same tokens in random order inside consecutive windows of this many; the last token stays.

        A shorter rest at the end is shuffled too.
        """
        pieces, length = self.tokens.shape[0], self.length
        noise = torch.rand(pieces, length, generator=generator)
        # sorting by (window, noise) permutes inside each window
        order = (noise + torch.arange(length) // window).argsort(1)
        tokens = torch.cat([self.tokens[:, :length].gather(1, order), self.tokens[:, length:]], 1)
        return Text(tokens, self.documents, self.names, self.bytes)


def losses(model: nn.Module, text: Text, precision: str) -> Float[Tensor, "pieces length"]:
    """How surprising each next token is to the model [nats].

    Args:
        model: gives the logits of the next token at each place.
        text: what to read.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return torch.cat([_nats(model, rows, precision) for rows in _chunks(text)])
    finally:
        model.train(training)


def by_document(nats: Float[Tensor, "pieces length"], text: Text) -> list[dict[str, str | int | float]]:
    """Tokens, bytes and surprise [nats] of each document."""
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


def by_place(nats: Float[Tensor, "pieces length"], bins: int) -> tuple[list[int], list[float]]:
    """Mean surprise [nats a token] by place in the text: the first place of each bin, and its mean."""
    length = nats.shape[1]
    edges = np.unique(np.linspace(0, length, min(bins, length) + 1).round().astype(int))
    means = [float(nats[:, a:b].double().mean()) for a, b in pairwise(edges)]
    return edges[:-1].tolist(), means


def order_curve(
    model: nn.Module, text: Text, precision: str, generator: torch.Generator
) -> list[dict[str, int | float]]:
    """Mean surprise [nats a token] when the tokens are shuffled inside windows of 1 (not at all), 2, 4, 8 .. length.

    A model that took no notice of order would not notice.
    """
    return [
        {
            "window": window,
            "nats_per_token": float(losses(model, text.shuffled(window, generator), precision).double().mean()),
        }
        for window in windows_to(text.length)
    ]


def windows_to(length: int) -> list[int]:
    """Windows to shuffle in: 1, 2, 4, 8 .. up to the length [tokens]."""
    windows = [2**power for power in range(int(math.log2(length)) + 1)]
    return windows if windows[-1] == length else [*windows, length]


def products(precision: str, device: str) -> AbstractContextManager[object]:
    """The context in which matrix products have this precision."""
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


def _chunks(text: Text) -> Iterator[Tensor]:
    return iter(text.tokens.split(max(1, TOKENS_AT_ONCE // text.length)))


def _nats(model: nn.Module, rows: Tensor, precision: str) -> Tensor:
    device = next(model.parameters()).device
    rows = rows.to(device)
    with products(precision, device.type):
        logits = model(rows[:, :-1])
    nats = nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return nats.view(rows.shape[0], -1).cpu()
