"""Evaluate any language models on the same held-out text at several lengths, side by side."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.evaluation.lengths import Lengths, beyond_maximum
from ordinate.evaluation.losses import losses_by_position
from ordinate.evaluation.model_differences import comparable, differences, position_differences
from ordinate.evaluation.outcome import Evaluation
from ordinate.evaluation.quantity import BITS_PER_TOKEN
from ordinate.evaluation.reading import Meter, Reading, by_document, read_losses, reasons
from ordinate.evaluation.result import LeftOut
from ordinate.evaluation.side_by_side import MeasuredModel
from ordinate.evaluation.subject import Subject
from ordinate.evaluation.text_sample import TextSample, TextSource, TokenPieces

POSITION_BINS = 32
# without a second document there is no interval
FEWEST_DOCUMENTS = 2


def evaluate_text_models(
    subjects: Sequence[Subject],
    source: TextSource,
    lengths: Lengths,
    *,
    samples: int,
    notes: Sequence[str] = (),
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Evaluate language models on the same pieces of documents at every length.

    At a shorter length a piece is cut into windows, so that the same tokens are predicted from less context. Decoders
    predict every token, encoders the same masked tokens at every length.

    Args:
        subjects: the models.
        source: the text, for the tokenizers of these models.
        lengths: the lengths.
        samples: largest number of pieces of the longest length.
        notes: what else must be known, as sentences.
        on_progress: receives the fraction done.

    Raises:
        ValueError: the text is too short for every length, or a model can be evaluated at none.
    """
    need_positive("samples", samples)
    planned = [lengths.of(subject) for subject in subjects]
    refused = [_refused(subject, own) for subject, own in zip(subjects, planned, strict=True)]
    on_progress(Progress(item=source.name, stage="reading"))
    sample, count, short = _longest_sample(source, planned, samples)
    meter = Meter(on_progress, source.name, sum(len(own[:count]) for own in planned))
    readings = []
    for subject, pieces, own, out in zip(subjects, _same_bytes(sample.pieces), planned, refused, strict=True):
        without = [LeftOut(*one, short[place]) for place, one in enumerate(own) if place >= count]
        left_out = {one.length: one for one in [*without, *out]}
        kept = [one for one in own if one[1] not in left_out]
        readings.append(read_losses(subject, pieces, kept, list(left_out.values()), meter))
    meter.close()
    return Evaluation(
        data=source.name,
        units="documents",
        count=len(sample.names),
        models=tuple(_measured(reading, sample).result for reading in readings),
        differences=differences(readings, sample),
        by_position=position_differences(readings, sample),
        notes=(*notes, *_notes(readings)),
    )


def _refused(subject: Subject, lengths: Sequence[tuple[int, int]]) -> list[LeftOut]:
    """Return the lengths that a model cannot read; raise if it can be evaluated at none."""
    found = beyond_maximum(subject, lengths)
    must = "a model must be able to read some of the lengths"
    need(len(found) < len(lengths), must, reasons(found), "give shorter ones")
    needed = subject.kind == "encoder" and subject.mask_token is None
    must, came = "an encoder is evaluated on masked tokens", f"{subject.name} has no mask token"
    need(not needed, must, came, "give its tokenizer.json")
    special, shortest = sum(token is not None for token in (subject.first_token, subject.last_token)), lengths[0][1]
    must = "an encoder must read a token that can be masked beside its special tokens"
    came = f"{subject.name} adds {special} to texts of {shortest} tokens in all"
    need(subject.kind != "encoder" or special < shortest, must, came, "give longer lengths")
    return found


def _longest_sample(
    source: TextSource, planned: Sequence[Sequence[tuple[int, int]]], samples: int
) -> tuple[TextSample, int, dict[int, str]]:
    """Return pieces of the longest length for which there is text, how many lengths that covers, and why no more."""
    short, size = dict[int, str](), source.bytes_per_token
    for place in range(len(planned[0]) - 1, -1, -1):
        sizes = [own[place][1] for own in planned]
        found = source.sample(sizes, samples)
        if found is not None and len(found.names) >= FEWEST_DOCUMENTS:
            return found, place + 1, short
        number = 0 if found is None else len(found.names)
        short[place] = (
            f"the text has {number or 'no'} document{'' if number == 1 else 's'} with {max(sizes) + 1:,} tokens; an "
            f"interval needs {FEWEST_DOCUMENTS}, of about {_size(max(sizes) * size)} each"
        )
    raise ValueError(
        f"{FEWEST_DOCUMENTS} documents must be long enough for the shortest length; of {source.name}: {short[0]}; "
        "give more or longer text, or shorter lengths"
    )


def _same_bytes(pieces: Sequence[TokenPieces]) -> list[TokenPieces]:
    """Let all models predict the same bytes, to within one token: those that the shortest piece of them has."""
    end = torch.stack([own.ends[:, -1] for own in pieces]).amin(0)
    return [replace(own, stop=end) for own in pieces]


def _measured(reading: Reading, sample: TextSample) -> MeasuredModel:
    subject, quantity = reading.subject, reading.quantity
    rows = []
    for times, length in reading.lengths:
        row = _row(reading, sample, times, length)
        amounts, sizes = quantity.table(row)
        value, interval = quantity.value(amounts[None], sizes), quantity.interval(amounts[None], sizes)
        rows.append({**row, quantity.field: value, "interval": interval})
    positions = {}
    if subject.kind == "decoder" and bool(reading.asked.all()):
        longest = reading.lengths[-1][1]
        places, means = losses_by_position(reading.nats[longest].view(-1, longest), POSITION_BINS)
        positions = {"position": places, "nats_per_token": means}
    source = subject.trained_length_source
    return MeasuredModel(subject.name, quantity, rows, subject.trained_length, source, reading.left_out, positions)


def _row(reading: Reading, sample: TextSample, times: int, length: int) -> dict[str, Any]:
    """Sums of each document at one length, in the format of a study's results."""
    nats, asked = reading.nats[length].double(), reading.asked
    sums = {
        "tokens": by_document(sample, asked),
        "bytes": by_document(sample, reading.pieces.sizes * asked),
        "asked": by_document(sample, asked),
        "nats": by_document(sample, nats),
    }
    documents = [
        {"name": name, **{key: float(own[place]) if key == "nats" else int(own[place]) for key, own in sums.items()}}
        for place, name in enumerate(sample.names)
    ]
    mean = float(nats.sum() / asked.sum())
    return {"times": times, "length": length, "nats_per_token": mean, "documents": documents}


def _notes(readings: Sequence[Reading]) -> list[str]:
    notes = []
    for reading in readings:
        if reading.quantity is BITS_PER_TOKEN:
            notes.append(
                f"{reading.subject.name}: bits per token and not per byte, since its tokenizer replaces some of the "
                "text by its unknown token."
            )
    refused = [(one, other) for one, other in combinations(readings, 2) if not comparable(one, other)]
    notes += [
        f"{one.subject.name} and {other.subject.name} are not compared: they predict different tokens, in "
        f"{one.quantity.name} and {other.quantity.name}."
        for one, other in refused
    ]
    return notes


def _size(count: float) -> str:
    return f"{count / 1000:,.0f} kB" if count >= 10_000 else f"{count / 1000:.1f} kB"
