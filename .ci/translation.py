"""Train a translator on the default pairs, and measure it on those held out: writes studies/translation.

Run it from the root: python .ci/translation.py. A run that was killed goes on where it was; one that is interrupted
(Ctrl-C) is measured as it is, and goes on from there the next time.
"""

import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from ordinate.data.pairs import PairStore, prepare_pairs
from ordinate.data.sentences import find_sentences
from ordinate.files import write_json, write_text
from ordinate.geometry import Geometry
from ordinate.models.beam import beam_search
from ordinate.models.crossing import cross_weights
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.translate import translate
from ordinate.report.translation import translation_page
from ordinate.tasks.translation import Translation
from ordinate.tokenizer import Tokenizer, make_tokenizer
from ordinate.training.loop import train
from ordinate.training.metrics import Metrics
from ordinate.training.settings import Settings, Stopped

RUN, STUDY, PAGE = Path("runs/translation"), Path("studies/translation"), Path("docs/encoder_decoder.md")
LENGTH, TOGETHER = 64, 32
# of 1, 2 and 3 the penalty that scored best on pairs of the training side, or nearly
BEAMS = {"beams": 4, "length_penalty": 2.0}
SETTINGS = Settings(steps=6000, batch=32, seed=0, learning_rate=3e-3, warmup=100, checkpoint_every=100)
SIZES = {"width": 128, "layers": 3, "heads": 4, "scheme": "rope", "dropout": 0.1}


def sides(store: PairStore, split: str) -> Translation:
    """The pairs of one side of the split, as a task."""
    sources, targets = (store.lines(split, side) for side in ("source", "target"))
    return Translation(sources=sources, targets=targets, tokens=store.tokenizer.size, length=LENGTH)


def trained(store: PairStore) -> EncoderDecoder:
    """The translator."""
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
    except Stopped:
        print("stopped: measuring what was learned so far")
    model.save_pretrained(RUN / "model")
    store.tokenizer.save(RUN / "model")
    return model.eval()


def said(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, **settings: Any) -> list[str]:
    """What the model makes of every source of a task."""
    texts = []
    for begin in range(0, len(task.fitting), TOGETHER):
        batch = task.batch(task.fitting[begin : begin + TOGETHER])
        with torch.inference_mode():
            memory = model.read(batch.source, Geometry.padded(batch.source_real, causal=False))
        if settings:
            rows = beam_search(model, memory, LENGTH, **settings).ids[:, 0].tolist()
        else:
            rows = translate(model, memory, LENGTH).tolist()
        texts += [text_of(task, tokenizer, row) for row in rows]
    return texts


def text_of(task: Translation, tokenizer: Tokenizer, row: list[int]) -> str:
    """The text of a row of tokens, up to its end."""
    cut = row[: row.index(task.end)] if task.end in row else row
    return tokenizer.decode([token for token in cut if token < tokenizer.size])


def scores(name: str, found: list[str], wanted: list[str]) -> dict[str, Any]:
    """The scores of translations, 0 to 100."""
    chrf, bleu = sacrebleu.corpus_chrf(found, [wanted]), sacrebleu.corpus_bleu(found, [wanted])
    return {"name": name, "chrf": round(chrf.score, 2), "bleu": round(bleu.score, 2)}


def looked(model: EncoderDecoder, task: Translation, tokenizer: Tokenizer, place: int) -> dict[str, Any]:
    """What the translation of one source looked at in it."""
    batch = task.batch([place])
    with torch.inference_mode():
        memory = model.read(batch.source)
    row = beam_search(model, memory, LENGTH, **BEAMS).ids[0, 0].tolist()
    row = row[: row.index(task.end)] if task.end in row else row
    weights = cross_weights(model, torch.tensor([[task.start, *row]]), memory)
    mean = torch.stack(weights).mean((0, 2))[0]
    return {
        "source": [tokenizer.decode([token]) for token in batch.source[0].tolist()],
        "target": [*(tokenizer.decode([token]) for token in row), "(end)"],
        "weights": [[round(weight, 4) for weight in line] for line in mean.tolist()],
    }


def measured(model: EncoderDecoder, store: PairStore) -> dict[str, Any]:
    """Scores on every held-out pair, beside those of copying and of always saying the commonest summary."""
    task, tokenizer = sides(store, "validation"), store.tokenizer
    source, wanted = (
        [tokenizer.decode(side[place].tolist()) for place in task.fitting] for side in (task.sources, task.targets)
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
            scores("translated, the likeliest token each time", said(model, task, tokenizer), wanted),
            scores("the source, copied", source, wanted),
            scores("always the commonest summary", [common] * len(wanted), wanted),
            scores("translated, 4 beams: summaries never heard in training", told[0], told[2]),
            scores("the source, copied: summaries never heard in training", told[1], told[2]),
        ],
        "crossing": looked(model, task, tokenizer, task.fitting[place]),
        "samples": [{"source": source[at], "target": wanted[at], "said": found[at]} for at in spread],
        "pairs": {"learned": len(learned.fitting), "held out": len(wanted), "of these never heard": len(fresh)},
    }


def table(result: dict[str, Any]) -> str:
    """The scores, as the page has them."""
    rows = "\n".join(f"| {row['name']} | {row['chrf']:.1f} | {row['bleu']:.1f} |" for row in result["scores"])
    return f"{result['about']} {result['measured']}\n\n| | chrF | BLEU |\n|---|---|---|\n{rows}\n"


def put(result: dict[str, Any]) -> None:
    """Write the table into the page."""
    before, begin, rest = PAGE.read_text().partition("<!-- translation -->\n")
    _, end, after = rest.partition("<!-- end of translation -->")
    if not (begin and end):
        raise SystemExit(f"{PAGE} needs the lines <!-- translation --> and <!-- end of translation -->")
    write_text(PAGE, f"{before}{begin}\n{table(result)}\n{end}{after}")


def main() -> None:
    """Train, measure, write."""
    torch.set_num_threads(1)
    store = prepare_pairs(find_sentences("docstrings"), RUN / "pairs", make_tokenizer("bpe", {"size": "2048"}))
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
    write_json(STUDY / "result.json", result)
    write_text(STUDY / "report.html", translation_page(result))
    put(result)


if __name__ == "__main__":
    sys.exit(main())
