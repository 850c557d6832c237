"""Train a translation model on the default pairs, and evaluate it on held-out ones: writes studies/translation.

Run it from the root: python .ci/translation.py. A run that was killed resumes from its checkpoint; one that is
interrupted (Ctrl-C) is evaluated as it is, and resumes the next time.
"""

import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from generated_parts import Pages, write

from ordinate.core.atomic_files import read_checksummed, write_checksummed, write_text
from ordinate.core.geometry import Geometry
from ordinate.data.sentence_pair_sources import resolve_parallel_corpus
from ordinate.data.sentence_pair_store import PairStore, prepare_pairs
from ordinate.data.tasks.translation import Translation
from ordinate.data.tokenizer import Tokenizer, make_tokenizer
from ordinate.models._translate import translate
from ordinate.models.beam import beam_search
from ordinate.models.cross_attention_weights import cross_attention_weights
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.report.translation import translation_page
from ordinate.training.loop import train
from ordinate.training.metrics import Metrics
from ordinate.training.settings import TrainingSettings, TrainingStopped

ROOT = Path(__file__).parents[1]
RUN, STUDY, PAGE = Path("runs/translation"), ROOT / "studies/translation", ROOT / "docs/encoder_decoder.md"
LENGTH, TOGETHER = 64, 32
# the length penalty of 1, 2 and 3 that scored best, or nearly so, on training pairs
BEAMS = {"beams": 4, "length_penalty": 2.0}
SETTINGS = TrainingSettings(steps=6000, batch=32, seed=0, learning_rate=3e-3, warmup_steps=100, checkpoint_every=100)
SIZES = {"width": 128, "layers": 3, "heads": 4, "scheme": "rope", "dropout": 0.1}


def sides(store: PairStore, split: str) -> Translation:
    """Return the pairs of one split as a task."""
    sources, targets = (store.sequences(split, side) for side in ("source", "target"))
    return Translation(sources=sources, targets=targets, tokens=store.tokenizer.size, length=LENGTH)


def trained(store: PairStore) -> EncoderDecoder:
    """Train the model, and save it."""
    task = sides(store, "train")
    signs = {"vocabulary": task.vocabulary, "start": task.start, "end": task.end, "padding": task.start}
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderShape(**SIZES, **signs))
    began = time.time()

    def watch(step: int, loss: float) -> None:
        if step % 50 == 0:
            print(f"step {step} loss {loss:.3f} after {time.time() - began:.0f} s", flush=True)

    try:
        train(model, task, SETTINGS, RUN / "checkpoints", watch)
    except TrainingStopped:
        print("stopped: measuring what was learned so far")
    model.save_pretrained(RUN / "model")
    store.tokenizer.save(RUN / "model")
    return model.eval()


def said(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, **settings: Any) -> list[str]:
    """Translate every source of a task."""
    texts = []
    for begin in range(0, len(task.usable), TOGETHER):
        batch = task.batch(task.usable[begin : begin + TOGETHER])
        with torch.inference_mode():
            memory = model.read(batch.source, Geometry.padded(batch.source_token_mask, causal=False))
        if settings:
            rows = beam_search(model, memory, LENGTH, **settings).ids[:, 0].tolist()
        else:
            rows = translate(model, memory, LENGTH).tolist()
        texts += [text_of(task, tokenizer, row) for row in rows]
    return texts


def text_of(task: Translation, tokenizer: Tokenizer, row: list[int]) -> str:
    """Decode tokens up to the end token."""
    cut = row[: row.index(task.end)] if task.end in row else row
    return tokenizer.decode([token for token in cut if token < tokenizer.size])


def scores(name: str, found: list[str], wanted: list[str]) -> dict[str, Any]:
    """Score translations by chrF and BLEU, 0 to 100."""
    chrf, bleu = sacrebleu.corpus_chrf(found, [wanted]), sacrebleu.corpus_bleu(found, [wanted])
    return {"name": name, "chrf": round(chrf.score, 2), "bleu": round(bleu.score, 2)}


def looked(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, place: int) -> dict[str, Any]:
    """Return the cross-attention weights of the translation of one source."""
    batch = task.batch([place])
    with torch.inference_mode():
        memory = model.read(batch.source)
    row = beam_search(model, memory, LENGTH, **BEAMS).ids[0, 0].tolist()
    row = row[: row.index(task.end)] if task.end in row else row
    weights = cross_attention_weights(model, torch.tensor([[task.start, *row]]), memory)
    mean = torch.stack(weights).mean((0, 2))[0]
    return {
        "source": [tokenizer.decode([token]) for token in batch.source[0].tolist()],
        "target": [*(tokenizer.decode([token]) for token in row), "(end)"],
        "weights": [[round(weight, 4) for weight in line] for line in mean.tolist()],
    }


def measured(model: EncoderDecoder, store: PairStore) -> dict[str, Any]:
    """Scores on all held-out pairs, with two baselines: copying the source, and the most frequent target."""
    task, tokenizer = sides(store, "validation"), store.tokenizer
    source, wanted = (
        [tokenizer.decode(side[place].tolist()) for place in task.usable] for side in (task.sources, task.targets)
    )
    learned = sides(store, "train")
    heard = Counter(tokenizer.decode(line.tolist()) for line in learned.targets)
    found = said(model, task, tokenizer, **BEAMS)
    fresh = [place for place, text in enumerate(wanted) if text not in heard]
    told = [[texts[place] for place in fresh] for texts in (found, source, wanted)]
    common = heard.most_common(1)[0][0]
    place = min(range(len(wanted)), key=lambda place: abs(len(source[place]) - 24) + (found[place] != wanted[place]))
    spread = range(0, len(wanted), max(1, len(wanted) // 12))
    return {
        "scores": [
            scores("translated, 4 beams", found, wanted),
            scores("translated, the most probable token each time", said(model, task, tokenizer), wanted),
            scores("the source, copied", source, wanted),
            scores("always the commonest summary", [common] * len(wanted), wanted),
            scores("translated, 4 beams: summaries never heard in training", told[0], told[2]),
            scores("the source, copied: summaries never heard in training", told[1], told[2]),
        ],
        "crossing": looked(model, task, tokenizer, task.usable[place]),
        "samples": [{"source": source[at], "target": wanted[at], "said": found[at]} for at in spread],
        "pairs": {"learned": len(learned.usable), "held out": len(wanted), "of these never heard": len(fresh)},
    }


def table(result: dict[str, Any]) -> str:
    """Return the scores as a table in markdown."""
    rows = "\n".join(f"| {row['name']} | {row['chrf']:.1f} | {row['bleu']:.1f} |" for row in result["scores"])
    return f"{result['about']} {result['measured']}\n\n| | chrF | BLEU |\n|---|---|---|\n{rows}"


def pages() -> Pages:
    """Return the page with the table of the stored result."""
    result = read_checksummed(STUDY / "result.json")
    return {PAGE: {"translation": table(result)}}


def main() -> None:
    """Train, evaluate, and write results and pages."""
    torch.set_num_threads(1)
    store = prepare_pairs(
        resolve_parallel_corpus("docstrings"), RUN / "pairs", make_tokenizer("bpe", {"size": "2048"})
    )
    model = trained(store)
    found, done = measured(model, store), len(Metrics(RUN / "checkpoints" / "metrics.jsonl").read())
    pairs, parameters = found["pairs"], sum(parameter.numel() for parameter in model.parameters())
    result = {
        "title": "Signatures into what functions do",
        "about": f"An encoder-decoder of {parameters:,} numbers learned {pairs['learned']} pairs of Python's "
        f"standard library, a function's signature and the first line of its docstring, in {done} steps "
        f"of {SETTINGS.batch} pairs.",
        "measured": f"On all {pairs['held out']} held-out pairs, chosen by a hash of the source. Of their summaries, "
        f"{pairs['of these never heard']} are of no pair that was learned from. chrF and BLEU by sacrebleu "
        f"{sacrebleu.__version__}, 0 to 100, higher is better.",
        "command": "python .ci/translation.py",
        "settings": asdict(SETTINGS)
        | SIZES
        | {"steps done": done, "tokenizer": "bpe:size=2048", "length": LENGTH, "beams": BEAMS},
        "data": store.identity,
        **found,
    }
    STUDY.mkdir(parents=True, exist_ok=True)
    write_checksummed(STUDY / "result.json", result)
    write_text(STUDY / "report.html", translation_page(result))
    write(pages())


if __name__ == "__main__":
    sys.exit(main())
