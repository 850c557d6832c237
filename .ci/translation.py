"""Train a translator on the default pairs, and measure it on those held out: writes studies/translation.

Run it from the root: python .ci/translation.py. A run that was stopped goes on where it was.
"""

import sys
import time
from pathlib import Path

import torch

from ordinate.data.pairs import PairStore, prepare_pairs
from ordinate.data.sentences import find_sentences
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.tasks.translation import Translation
from ordinate.tokenizer import make_tokenizer
from ordinate.training.loop import train
from ordinate.training.settings import Settings

RUN, STUDY = Path("runs/translation"), Path("studies/translation")
LENGTH = 64
SETTINGS = Settings(steps=2000, batch=32, seed=0, learning_rate=2e-3, warmup=100, checkpoint_every=100)
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

    train(model, task, SETTINGS, RUN / "checkpoints", watch)
    model.save_pretrained(RUN / "model")
    store.tokenizer.save(RUN / "model")
    return model.eval()


def main() -> None:
    """Train, measure, write."""
    torch.set_num_threads(1)
    store = prepare_pairs(find_sentences("docstrings"), RUN / "pairs", make_tokenizer("bpe", {"size": "2048"}))
    trained(store)


if __name__ == "__main__":
    sys.exit(main())
