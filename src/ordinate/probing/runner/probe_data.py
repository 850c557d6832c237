"""Input of probes: text samples of equal length."""

import heapq
from collections.abc import Iterator

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.data.corpus import Corpus, Document
from ordinate.data.heldout_split import held_out_documents
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing._probe import ProbeData


def sample_text(subject: ModelAdapter, text: str, *, sequences: int = 64, length: int = 512) -> ProbeData:
    """Sample token sequences of one length, from as many different documents as possible.

    Held-out documents of an Ordinate study come first, in the order of a hash of their names. Each document gives one
    sample, at a position chosen by the same hash, because the beginnings of files are not typical. Documents give a
    second sample only if there are too few. The first token of the model (BOS, [CLS]), if any, precedes each sample.

    Args:
        subject: the model, whose tokenizer is used.
        text: a corpus by name, or a file or folder.
        sequences: maximum number of samples.
        length: tokens of a sample; limited to the maximum length of the model.

    A model without a tokenizer gets random tokens; the material is then marked as not natural.

    Raises:
        ValueError: fewer than two samples, or samples of fewer than 8 tokens, are requested.
        NotApplicable: the model takes no text, or the text is too short.
    """
    need(sequences > 1, "an interval needs two samples or more", f"got {sequences}", "give more --samples")
    facts = subject.info
    size = length if facts.max_length is None else min(length, facts.max_length)
    front = 0 if facts.first_token is None else 1
    need(size - front >= 8, "a sample needs 8 tokens or more", f"got {size}", "give a larger --length")
    if facts.kind == "vision":
        raise NotApplicable(f"{facts.name} takes images; give them by --images, an .npy file")
    corpus = resolve_corpus(text)
    try:
        subject.tokenize("")
    except NotApplicable as reason:
        return _random(facts, sequences, size, str(reason))
    pieces: list[list[Tensor]] = []
    for document in _spread(corpus, sequences, size):
        ids = subject.tokenize(document.text)
        pieces.append(_cut(ids, size - front, document.name))
        if sum(bool(own) for own in pieces) >= sequences:
            break
    most = max(map(len, pieces), default=0)
    chosen = [own[turn] for turn in range(most) for own in pieces if turn < len(own)][:sequences]
    if len(chosen) < 2:
        raise NotApplicable(
            f"a text must have two samples of {size - front} tokens, each within one document; {text} has "
            f"{len(chosen)}; give more or longer text, or a smaller --length"
        )
    rows = _begun(facts, torch.stack(chosen).long())
    return ProbeData(rows, None, f"{len(rows)} samples of {size} tokens from {corpus.name}")


def check_input(subject: ModelAdapter | NotApplicable, material: ProbeData) -> ProbeData:
    """Return the material after checking that images have the size of the model, and tokens are in its vocabulary.

    Raises:
        ValueError: images of another size or number of channels, or token ids outside the vocabulary.
    """
    if isinstance(subject, ModelAdapter) and material.ids is not None and material.ids.numel():
        least, most, size = int(material.ids.min()), int(material.ids.max()), subject.info.vocabulary
        need(
            size == 0 or (least >= 0 and most < size),
            f"token ids must be in the vocabulary of {subject.info.name}, 0 to {size - 1}",
            f"got {least} to {most} in {material.source}",
            "use its own tokenizer",
        )
    if isinstance(subject, NotApplicable) or subject.info.image is None or material.images is None:
        return material
    (channels, rows, columns), came = subject.info.image, tuple(material.images.shape[1:])
    need(
        came == subject.info.image,
        f"{subject.info.name} takes images of {channels} channels and {rows} by {columns} pixels",
        f"got {came[0]} channels and {came[1]} by {came[2]} pixels in {material.source}",
        "give images of that size",
    )
    return material


def _random(facts: ModelInfo, sequences: int, length: int, reason: str) -> ProbeData:
    """Random tokens, none of them special, for a model without a tokenizer."""
    generator = torch.Generator().manual_seed(0)
    front = 0 if facts.first_token is None else 1
    known = facts.ordinary_tokens
    if not len(known):
        raise NotApplicable(f"{facts.name} has no tokens but special ones, of which no random text is made")
    rows = known[torch.randint(len(known), (sequences, length - front), generator=generator)]
    source = f"{sequences} samples of {length} random tokens, since {reason}"
    return ProbeData(_begun(facts, rows), None, source, natural=False)


def _begun(facts: ModelInfo, rows: Tensor) -> Tensor:
    """Prepend the first token of the model, if it has one."""
    if facts.first_token is None:
        return rows
    return torch.cat([torch.full((len(rows), 1), facts.first_token), rows], 1)


def _spread(corpus: Corpus, sequences: int, length: int) -> Iterator[Document]:
    """Yield documents that may be long enough: held-out ones first, each group in the order of a hash."""
    held = held_out_documents(corpus)
    for side in (True, False):
        # 8 times as many, as some turn out too short; in most vocabularies a token is at least one byte
        wanted = (
            document for document in corpus.documents() if held(document) is side and len(document.text) >= length
        )
        yield from heapq.nsmallest(8 * sequences, wanted, key=lambda document: derive_seed("probe", document.name))


def _cut(ids: Tensor, length: int, name: str) -> list[Tensor]:
    """Cut a document into samples, in an order seeded by its name."""
    count = len(ids) // length
    generator = torch.Generator().manual_seed(derive_seed(name) % 2**63)
    return [ids[length * index : length * (index + 1)] for index in torch.randperm(count, generator=generator)]
