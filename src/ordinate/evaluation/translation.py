"""Evaluate a translation model: teacher-forced loss by length, exact matches, chrF, and samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.data.tasks.translation import Line, Translation
from ordinate.data.tokenizer import Tokenizer
from ordinate.evaluation.prediction import has_target, token_losses
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.settings import EvaluationSettings
from ordinate.evaluation.statistics import Floats, nats_to_bits
from ordinate.evaluation.task import MAX_BINS, accuracy_by
from ordinate.models._translate import translate
from ordinate.models.cross_attention_weights import cross_attention_weights
from ordinate.models.encoder_decoder import EncoderDecoder

# batch size of generation [sentences]
GENERATION_BATCH = 64


def evaluate_translation(
    model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, plan: EvaluationSettings
) -> dict[str, Any]:
    """Evaluate on held-out pairs; returns `lengths`, `samples` and `crossing` (cross-attention of an example).

    The same pairs are evaluated at every length: singly, and concatenated.
    """
    multiples = sorted(plan.eval_length_multiples)
    chosen = choose_pairs(task, max(multiples), plan.eval_samples)
    lengths = [loss_at(model, task, tokenizer, plan.precision, (times, chosen)) for times in multiples]
    first = [place for group in chosen for place in group]
    written = _written(model, task, tokenizer, first)
    given, wanted = (
        [tokenizer.decode(side[place].tolist()) for place in first] for side in (task.sources, task.targets)
    )
    lengths[0] |= {
        "exact": float(np.mean([one == other for one, other in zip(written, wanted, strict=True)])),
        "chrf": chrf(written, wanted),
        "chrf_copied": chrf(given, wanted),
    }
    shown = np.linspace(0, len(first) - 1, plan.generated_texts).round().astype(int).tolist()
    samples = [{"prompt": given[i], "text": written[i], "wanted": wanted[i]} for i in shown]
    return {"lengths": lengths, "samples": samples, "crossing": _crossing(model, task, tokenizer, first[0])}


def _crossing(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, place: int) -> dict[str, Any]:
    """Cross-attention pattern of a held-out pair, averaged over layers and heads."""
    batch, device = task.batch([place]), next(model.parameters()).device
    with torch.inference_mode():
        memory = model.encode_source(batch.tensors["source"].to(device))
        weights = cross_attention_weights(model, batch.inputs.to(device), memory)
    lines = (batch.tensors["source"][0], task.targets[place])
    source, target = ([tokenizer.decode([token]) for token in line.tolist()] for line in lines)
    mean = torch.stack(weights).mean((0, 2))[0].double()
    # the last row predicts the end token
    return {
        "source": source,
        "target": [*target, ""],
        "weights": [[round(w, 4) for w in row] for row in mean.tolist()],
    }


def chrf(written: Sequence[str], wanted: Sequence[str]) -> float | None:
    """Corpus chrF score (character n-gram F-score), from 0 to 100; None without sacrebleu.

    Source: Popovic 2015, chrF, https://aclanthology.org/W15-3049.
    """
    try:
        from sacrebleu import corpus_chrf
    except ImportError:
        return None
    return float(corpus_chrf(list(written), [list(wanted)]).score)


def choose_pairs(task: Translation, group_size: int, samples: int) -> list[list[int]]:
    """Choose pairs to evaluate on, in groups of as many as are ever concatenated.

    Args:
        task: the pairs.
        group_size: pairs of a group.
        samples: largest number of pairs.

    Raises:
        ValueError: no group is short enough.
    """
    # shorter by the separating space between two pairs
    candidates = [
        place for place in task.usable if len(task.sources[place]) + task.special_tokens.end_source < task.length
    ]
    count = min(samples, len(candidates)) // group_size * group_size
    if not count:
        raise ValueError(
            f"{group_size} held-out pairs must be shorter than {task.length} tokens; there are {len(candidates)}; "
            "give more pairs, or a larger --length"
        )
    kept = [candidates[place] for place in np.linspace(0, len(candidates) - 1, count).round().astype(int)]
    return [kept[start : start + group_size] for start in range(0, count, group_size)]


def loss_at(
    model: EncoderDecoder,
    task: Translation,
    tokenizer: Tokenizer,
    precision: str,
    read: tuple[int, list[list[int]]],
) -> dict[str, Any]:
    """Return the loss of targets, with several pairs concatenated.

    Args:
        model: the model.
        task: the pairs.
        tokenizer: their tokenizer.
        precision: `bf16` for bfloat16 matrix products, or `fp32`.
        read: how many pairs are concatenated, and the groups from which they are taken.
    """
    times, groups = read
    space = tokenizer.encode_plain(" ")
    starts = [(owner, start) for owner, group in enumerate(groups) for start in range(0, len(group), times)]
    parts = [groups[owner][start : start + times] for owner, start in starts]
    sources, targets = (
        [_joined([side[place] for place in part], space) for part in parts] for side in (task.sources, task.targets)
    )
    sizes = {"tokens": task.tokens, "length": times * task.length, "special_tokens": task.special_tokens}
    joined = Translation(sources=sources, targets=targets, **sizes)
    batch = joined.batch(range(len(parts)))
    nats, right = token_losses(model, batch, precision)
    owner = [owner for owner, _ in starts]
    rows: dict[str, Floats] = {
        "nats": _summed(owner, nats),
        "right": _summed(owner, right),
        "asked": _summed(owner, has_target(batch)),
        "bytes": np.array(
            [sum(_bytes(task.targets[place], tokenizer) for place in group) for group in groups], float
        ),
    }
    read_in = torch.tensor([len(source) for source in sources])[:, None].expand_as(batch.targets)
    bits = nats_to_bits(rows["nats"])[None]
    return {
        "times": times,
        "length": times * task.length,
        "nats_per_token": float(rows["nats"].sum() / rows["asked"].sum()),
        "bits_per_byte": BITS_PER_BYTE.value(bits, rows["bytes"]),
        "interval": BITS_PER_BYTE.interval(bits, rows["bytes"]),
        "accuracy": float(rows["right"].sum() / rows["asked"].sum()),
        "slices": {"source length": accuracy_by(read_in, right, has_target(batch), MAX_BINS)},
        "documents": [{name: float(row[i]) for name, row in rows.items()} for i in range(len(groups))],
    }


def _bytes(line: Line, tokenizer: Tokenizer) -> int:
    """Bytes of the text of a line; tokens by themselves may lack the space before them."""
    return len(tokenizer.decode(line.tolist()).encode())


def _summed(owner: Sequence[int], numbers: Tensor) -> Floats:
    """Sum the rows of each group."""
    return np.bincount(np.array(owner), numbers.double().sum(1).numpy()).astype(float)


def _joined(lines: Sequence[Line], space: Line) -> Line:
    parts = [part for line in lines for part in (space, line)]
    return np.concatenate([np.asarray(part, np.int64) for part in parts[1:]])


def _written(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, places: Sequence[int]) -> list[str]:
    """Translate these sources by greedy decoding."""
    device, texts = next(model.parameters()).device, []
    for start in range(0, len(places), GENERATION_BATCH):
        source, real = task.read(places[start : start + GENERATION_BATCH])
        with torch.inference_mode():
            memory = model.encode_source(source.to(device), Geometry.padded(real.to(device), causal=False))
            lines = translate(model, memory, task.length)
        for line in lines.tolist():
            ids = line[: line.index(task.end)] if task.end in line else line
            texts.append(tokenizer.decode([token for token in ids if token < task.tokens]))
    return texts
