"""What a model reads while it is questioned: pieces of a text, all of one length."""

import heapq
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from ordinate.checks import need
from ordinate.corpus import Corpus, Document
from ordinate.data.find import find
from ordinate.data.split import Held, held_out
from ordinate.probe import Material
from ordinate.seeds import seed_of
from ordinate.subject import Facts, Subject, Unfit

# what our own studies hold out
SHARE = 0.1


def texts(subject: Subject, text: str, *, sequences: int = 64, length: int = 512) -> Material:
    """Pieces of a text in the model's tokens, from as many different documents as there are.

    Documents that a study of ours holds out come first, in an order that a hash of their names decides. Of each, one
    piece is taken at a place that the hash decides too: files begin unlike they go on. Only when there are too few
    does a document give a second. The model's first token, where it has one, stands in front of each.

    Args:
        subject: the model, which makes the tokens.
        text: a corpus by name, or a file or folder.
        sequences: pieces at most.
        length: tokens of a piece; no more than the model takes.

    A model without a tokenizer reads random tokens instead, which the material says of itself.

    Raises:
        ValueError: fewer than two pieces, or pieces of less than 8 tokens, are asked for.
        Unfit: the model reads no text, or the text is too short.
    """
    need(sequences > 1, "an interval needs two sequences or more", f"got {sequences}", "give more --sequences")
    facts = subject.facts
    size = length if facts.max_length is None else min(length, facts.max_length)
    front = 0 if facts.first_token is None else 1
    need(size - front >= 8, "a piece of text needs 8 tokens or more", f"got {size}", "give a larger --length")
    if facts.kind == "vision":
        raise Unfit(f"{facts.name} reads images; give it some by --images, an .npy file")
    corpus = find(text)
    try:
        subject.tokens_of("")
    except Unfit as reason:
        return _random(facts, sequences, size, str(reason))
    pieces: list[list[Tensor]] = []
    for document in _spread(corpus, sequences, size):
        ids = subject.tokens_of(document.text)
        pieces.append(_cut(ids, size - front, document.name))
        if sum(bool(own) for own in pieces) >= sequences:
            break
    most = max(map(len, pieces), default=0)
    chosen = [own[turn] for turn in range(most) for own in pieces if turn < len(own)][:sequences]
    if len(chosen) < 2:
        raise Unfit(
            f"a text must hold two pieces of {size - front} tokens, each within one document; {text} holds "
            f"{len(chosen)}; give more or longer text, or a smaller --length"
        )
    rows = _begun(facts, torch.stack(chosen).long())
    return Material(rows, None, f"{len(rows)} pieces of {size} tokens from {corpus.name}")


def fitting(subject: Subject | Unfit, material: Material) -> Material:
    """The material, if its images are as large as those that the model was made for.

    Raises:
        ValueError: they have another size, or other channels.
    """
    if isinstance(subject, Unfit) or subject.facts.image is None or material.images is None:
        return material
    (channels, rows, columns), came = subject.facts.image, tuple(material.images.shape[1:])
    need(
        came == subject.facts.image,
        f"{subject.facts.name} reads images of {channels} channels and {rows} by {columns} pixels",
        f"{material.source} have {came[0]} and {came[1]} by {came[2]}",
        "give images of that size",
    )
    return material


def _random(facts: Facts, sequences: int, length: int, reason: str) -> Material:
    """Tokens that mean nothing, of a model that no text can be given to."""
    generator = torch.Generator().manual_seed(0)
    front = 0 if facts.first_token is None else 1
    rows = torch.randint(facts.vocabulary, (sequences, length - front), generator=generator)
    source = f"{sequences} pieces of {length} random tokens, since {reason}"
    return Material(_begun(facts, rows), None, source, natural=False)


def _begun(facts: Facts, rows: Tensor) -> Tensor:
    """Texts behind the model's first token, where it has one."""
    if facts.first_token is None:
        return rows
    return torch.cat([torch.full((len(rows), 1), facts.first_token), rows], 1)


def _spread(corpus: Corpus, sequences: int, length: int) -> Iterator[Document]:
    """Documents that may be long enough: those held out first, each side in an order that hashes decide."""
    held = _held(corpus)
    for side in (True, False):
        # as many as may be needed where some turn out too short; a token is at least a byte in most vocabularies
        wanted = (
            document for document in corpus.documents() if held(document) is side and len(document.text) >= length
        )
        yield from heapq.nsmallest(8 * sequences, wanted, key=lambda document: seed_of("probe", document.name))


def _held(corpus: Corpus) -> Held:
    parts = Counter(document.source for document in corpus.documents())
    if sum(parts.values()) < 2:
        return lambda document: True
    return held_out(sorted(parts.items()), SHARE)[0]


def _cut(ids: Tensor, length: int, name: str) -> list[Tensor]:
    """The pieces of one document, in an order that its name decides."""
    count = len(ids) // length
    generator = torch.Generator().manual_seed(seed_of(name) % 2**63)
    return [ids[length * place : length * (place + 1)] for place in torch.randperm(count, generator=generator)]
