"""Everything that a study measures of a model that translates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.models.crossing import cross_weights
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.translate import translate
from ordinate.study.answers import RANGES, by_number
from ordinate.study.plan import Plan
from ordinate.study.statistics import Draws, Numbers, bits, interval, resampled
from ordinate.tasks.translation import Line, Translation
from ordinate.tokenizer import Tokenizer
from ordinate.training.answers import asked, told

# so many sentences are translated at once
AT_ONCE = 64


def measure_translations(
    model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, plan: Plan
) -> dict[str, Any]:
    """The sections of a result that need the trained model: lengths, and what it writes.

    The same pairs are read at every length: alone, and so many behind each other as one.
    """
    chosen = _chosen(task, plan)
    lengths = [_length(model, task, tokenizer, plan, (times, chosen)) for times in sorted(plan.multiples)]
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
    shown = np.linspace(0, len(first) - 1, plan.samples).round().astype(int).tolist()
    samples = [{"prompt": given[i], "text": written[i], "wanted": wanted[i]} for i in shown]
    return {"lengths": lengths, "samples": samples, "crossing": _crossing(model, task, tokenizer, first[0])}


def _crossing(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, place: int) -> dict[str, Any]:
    """What each token of a held-out target looks at in its source: the mean over layers and heads."""
    batch, device = task.batch([place]), next(model.parameters()).device
    with torch.inference_mode():
        memory = model.read(batch.tensors["source"].to(device))
        weights = cross_weights(model, batch.inputs.to(device), memory)
    lines = (batch.tensors["source"][0], task.targets[place])
    source, target = ([tokenizer.decode([token]) for token in line.tolist()] for line in lines)
    mean = torch.stack(weights).mean((0, 2))[0].double()
    # the last row says the end
    return {
        "source": source,
        "target": [*target, ""],
        "weights": [[round(w, 4) for w in row] for row in mean.tolist()],
    }


def chrf(written: Sequence[str], wanted: Sequence[str]) -> float | None:
    """How far these share runs of letters with what was wanted, from 0 to 100; None without sacrebleu.

    Source: Popovic 2015, chrF, https://aclanthology.org/W15-3049.
    """
    try:
        from sacrebleu import corpus_chrf
    except ImportError:
        return None
    return float(corpus_chrf(list(written), [list(wanted)]).score)


def _chosen(task: Translation, plan: Plan) -> list[list[int]]:
    """Pairs to measure on, in groups of as many as are ever put behind each other."""
    together = max(plan.multiples)
    # room for what stands between two
    short = [place for place in task.fitting if len(task.sources[place]) + task.signs.closes < plan.length]
    count = min(plan.windows, len(short)) // together * together
    if not count:
        raise ValueError(
            f"{together} held-out pairs must be shorter than {plan.length} tokens; there are {len(short)}; "
            "give more pairs, or a larger --length"
        )
    kept = [short[place] for place in np.linspace(0, len(short) - 1, count).round().astype(int)]
    return [kept[start : start + together] for start in range(0, count, together)]


def _length(
    model: EncoderDecoder,
    task: Translation,
    tokenizer: Tokenizer,
    plan: Plan,
    read: tuple[int, list[list[int]]],
) -> dict[str, Any]:
    times, groups = read
    space = tokenizer.bare(" ")
    starts = [(owner, start) for owner, group in enumerate(groups) for start in range(0, len(group), times)]
    parts = [groups[owner][start : start + times] for owner, start in starts]
    sources, targets = (
        [_joined([side[place] for place in part], space) for part in parts] for side in (task.sources, task.targets)
    )
    sizes = {"tokens": task.tokens, "length": times * plan.length, "signs": task.signs}
    joined = Translation(sources=sources, targets=targets, **sizes)
    batch = joined.batch(range(len(parts)))
    nats, right = told(model, batch, plan.precision)
    each, owner = tokenizer.byte_lengths, [owner for owner, _ in starts]
    rows: dict[str, Numbers] = {
        "nats": _summed(owner, nats),
        "right": _summed(owner, right),
        "asked": _summed(owner, asked(batch)),
        "bytes": np.array([sum(int(each[task.targets[place]].sum()) for place in group) for group in groups], float),
    }
    read_in = torch.tensor([len(source) for source in sources])[:, None].expand_as(batch.targets)
    drawn = resampled(bits(rows["nats"])[None], rows["bytes"], Draws.of(len(groups), 1))
    return {
        "times": times,
        "length": times * plan.length,
        "nats_per_token": float(rows["nats"].sum() / rows["asked"].sum()),
        "bits_per_byte": float(bits(rows["nats"]).sum() / rows["bytes"].sum()),
        "interval": interval(drawn, len(groups)),
        "accuracy": float(rows["right"].sum() / rows["asked"].sum()),
        "slices": {"source length": by_number(read_in, right, asked(batch), RANGES)},
        "documents": [{name: float(row[i]) for name, row in rows.items()} for i in range(len(groups))],
    }


def _summed(owner: Sequence[int], numbers: Tensor) -> Numbers:
    """The sum of each group's rows."""
    return np.bincount(np.array(owner), numbers.double().sum(1).numpy()).astype(float)


def _joined(lines: Sequence[Line], space: Line) -> Line:
    parts = [part for line in lines for part in (space, line)]
    return np.concatenate([np.asarray(part, np.int64) for part in parts[1:]])


def _written(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, places: Sequence[int]) -> list[str]:
    """What the model makes of these sources, the likeliest token each time."""
    device, texts = next(model.parameters()).device, []
    for start in range(0, len(places), AT_ONCE):
        source, real = task.read(places[start : start + AT_ONCE])
        with torch.inference_mode():
            memory = model.read(source.to(device), Geometry.padded(real.to(device), causal=False))
            lines = translate(model, memory, task.length)
        for line in lines.tolist():
            ids = line[: line.index(task.end)] if task.end in line else line
            texts.append(tokenizer.decode([token for token in ids if token < task.tokens]))
    return texts
