"""The losses of one model on pieces of documents, at every length: the same tokens with more or less context."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.evaluation.losses import TOKENS_PER_FORWARD
from ordinate.evaluation.masked_text import choose_masked
from ordinate.evaluation.prediction import token_losses
from ordinate.evaluation.quantity import BITS_PER_BYTE, BITS_PER_MASKED_TOKEN, BITS_PER_TOKEN, CrossEntropy
from ordinate.evaluation.result import LeftOut
from ordinate.evaluation.statistics import Floats
from ordinate.evaluation.subject import Subject
from ordinate.evaluation.text_sample import TextSample, TokenPieces

# largest logits of one forward pass, as numbers: a vocabulary may be large
LARGEST_LOGITS = 1 << 26
MASKED_SHARE = 0.15


@dataclass(frozen=True, eq=False)
class Reading:
    """The losses of one model at every length, for the same tokens.

    Args:
        subject: the model.
        pieces: the tokens.
        asked: which of the targets are predicted.
        nats: by length [tokens], the loss of each target; 0 where it is not predicted.
        lengths: multiple and tokens of each length with a value.
        left_out: the other lengths.
    """

    subject: Subject
    pieces: TokenPieces
    asked: Tensor
    nats: dict[int, Tensor]
    lengths: list[tuple[int, int]]
    left_out: list[LeftOut]

    @property
    def quantity(self) -> CrossEntropy:
        """What can be measured: bytes are known only where every target stands for a part of the text."""
        if self.subject.kind == "encoder":
            return BITS_PER_MASKED_TOKEN
        unknown = self.subject.tokenizer.unknown_token
        lost = unknown is not None and bool((self.pieces.tokens == unknown).any())
        return BITS_PER_TOKEN if lost else BITS_PER_BYTE

    @property
    def sizes(self) -> Tensor:
        """What each target counts: its bytes, or 1."""
        return self.pieces.sizes if self.quantity is BITS_PER_BYTE else self.asked.long()


class Meter:
    """The fraction done, in tokens read."""

    def __init__(self, on_progress: OnProgress, item: str, total: int) -> None:
        self.on_progress, self.item, self.total, self.done = on_progress, item, total, 0

    def read(self, share: float) -> None:
        """Report that a share of one length of one model is done."""
        done = (self.done + share) / self.total
        self.on_progress(Progress(item=self.item, stage="measuring", done=done, total=1.0))

    def end(self) -> None:
        """Report that one length of one model is done."""
        self.done += 1
        self.read(0.0)

    def close(self) -> None:
        """Report that everything is done."""
        self.on_progress(Progress(item=self.item, stage="measured", done=1.0, total=1.0))


def read_losses(
    subject: Subject, pieces: TokenPieces, lengths: list[tuple[int, int]], out: list[LeftOut], meter: Meter
) -> Reading:
    """Compute the losses at every length; a length that the model refuses is left out with its reason."""
    masked = subject.kind == "encoder"
    asked = _masked(subject, pieces, lengths) if masked else pieces.inside
    nats, kept = {}, []
    for times, length in lengths:
        try:
            found = _losses(subject, pieces, asked, length, meter)
        except (ValueError, IndexError) as error:
            out.append(LeftOut(times, length, str(error)))
            continue
        if not bool(found.isfinite().all()):
            out.append(LeftOut(times, length, f"the loss of {subject.name} is not finite there"))
            continue
        nats[length] = found
        kept.append((times, length))
    need(bool(kept), f"{subject.name} must have a loss at some length", reasons(out), "give shorter lengths")
    return Reading(subject, pieces, asked, nats, kept, sorted(out, key=lambda one: one.length))


def _losses(subject: Subject, pieces: TokenPieces, asked: Tensor, length: int, meter: Meter) -> Tensor:
    """Loss of each target of the pieces, read in windows of this length."""
    batch = _batch(subject, pieces.tokens, asked, length)
    rows = max(1, min(TOKENS_PER_FORWARD, LARGEST_LOGITS // max(1, subject.tokenizer.size)) // length)
    parts = batch.split(rows)
    found = []
    for index, part in enumerate(parts):
        found.append(token_losses(subject.model, part, subject.precision)[0])
        meter.read((index + 1) / len(parts))
    meter.end()
    return torch.cat(found).view(len(pieces.tokens), -1)


def _batch(subject: Subject, tokens: Tensor, asked: Tensor, length: int) -> Batch:
    """Windows of the pieces with their targets: the next tokens of a decoder, the masked ones of an encoder."""
    whole = tokens.shape[1] - 1
    masked = subject.kind == "encoder"
    inputs = tokens[:, :whole].reshape(-1, length).clone()
    targets = (tokens[:, :whole] if masked else tokens[:, 1:]).masked_fill(~asked, IGNORE_INDEX).reshape(-1, length)
    if masked and subject.mask_token is not None:
        inputs = inputs.masked_fill(asked.reshape(-1, length), subject.mask_token)
    if subject.first_token is not None:
        # the first token of a text stands in place of the one before the window, so that the length is exact
        inputs[:, 0] = subject.first_token
    if masked and subject.last_token is not None:
        inputs[:, -1] = subject.last_token
    return Batch(inputs, targets)


def _masked(subject: Subject, pieces: TokenPieces, lengths: Sequence[tuple[int, int]]) -> Tensor:
    """Choose the masked tokens, the same for every length: none where a shorter window has a special token."""
    count, whole = pieces.sizes.shape
    place = torch.arange(whole) % lengths[0][1]
    free = torch.ones(whole, dtype=torch.bool)
    if subject.first_token is not None:
        free &= place != 0
    if subject.last_token is not None:
        free &= place != lengths[0][1] - 1
    return choose_masked(count, whole, MASKED_SHARE, torch.Generator().manual_seed(0), free)


def by_document(sample: TextSample, numbers: Tensor) -> Floats:
    """Sum the numbers of each document."""
    sums = np.bincount(sample.documents.numpy(), numbers.double().sum(1).numpy(), len(sample.names))
    return sums.astype(np.float64)


def reasons(out: Sequence[LeftOut]) -> str:
    """Say why lengths have no value."""
    return "; ".join(f"{one.length:,} tokens: {one.reason}" for one in out)
