"""The text of replications that train: Python's documentation as bytes, every tenth document held out."""

from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from ordinate.core.shapes import Ids
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.data.tokenizers.bytes import Bytes

CORPUS, DOCUMENTS, EVERY = "docs", 250, 10
VOCABULARY = Bytes.size


def train_bytes() -> NDArray[np.uint8]:
    """Return the text for training."""
    return np.concatenate([text for place, text in enumerate(_texts()) if place % EVERY])


def heldout_texts(texts: int, tokens: int, seed: int = 0) -> Ids:
    """Return windows of the held-out documents, from random places, the same in each call."""
    held = np.concatenate([text for place, text in enumerate(_texts()) if place % EVERY == 0])
    starts = torch.randint(len(held) - tokens, (texts,), generator=torch.Generator().manual_seed(seed))
    return torch.from_numpy(np.stack([held[start : start + tokens] for start in starts.tolist()]).astype(np.int64))


def byte_entropy(text: NDArray[np.uint8]) -> float:
    """Entropy of single bytes [nats]: the loss of a model that has learnt nothing but their frequencies."""
    share = np.bincount(text, minlength=VOCABULARY) / len(text)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def _texts() -> list[NDArray[np.uint8]]:
    documents = islice(resolve_corpus(CORPUS).documents(), DOCUMENTS)
    return [Bytes().encode(document.text) for document in documents]
