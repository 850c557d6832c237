"""Reading along: what a stream tells whoever knows the model and texts like those that it reads."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.measures.presenting import Sample, streams
from ordinate.subject import Facts, Inputs, Subject

# hidden vectors of one text that are tried against candidates
TRIED, FROM = 6, 4


@dataclass(frozen=True, eq=False)
class Read:
    """What whoever reads along sees, and what they know.

    Args:
        secret: the rows of texts that are read along, in each layer.
        ids: their tokens, which are to be found.
        public: the rows of other texts, in each layer.
        known: their tokens.
        fixed: tokens in front of each text that are no secret.
    """

    secret: list[Float[Tensor, "texts n width"]]
    ids: Int[Tensor, "texts n"]
    public: list[Float[Tensor, "others n width"]]
    known: Int[Tensor, "others n"]
    fixed: int

    @classmethod
    def of(cls, subject: Subject, secret: Sample, public: Sample) -> "Read":
        """What a model, which is known, makes of secret texts and of other ones."""
        if secret.ids is None or public.ids is None:
            raise ValueError("what is read along are texts; got images; give texts")
        own, others = (_all_streams(subject, texts) for texts in (secret, public))
        return cls(own, secret.ids, others, public.ids, secret.fixed)


def recovered(read: Read, *, sort: bool) -> tuple[Float[Tensor, "texts layers"], Float[Tensor, "texts layers"]]:
    """The share of permuted rows whose place, and whose token, are recognised in each layer.

    Each row is compared with the mean of the rows of public texts at each place, and of each token; the nearest is
    taken. Whether and how rows were permuted has no say in it: each is looked at by itself.

    Args:
        read: rows of secret texts, in secret order, and of other texts.
        sort: whether columns were permuted too: rows are then compared with their numbers in order of size.
    """
    shares: tuple[list[Tensor], list[Tensor]] = ([], [])
    for seen, learned in zip(read.secret, read.public, strict=True):
        rows, others = (x.sort(-1).values if sort else x for x in (seen, learned))
        places = _nearest(rows, others.mean(0))
        tokens, means = _means_by_token(others, read.known)
        guessed = tokens[_nearest(rows, means)]
        shares[0].append((places == torch.arange(rows.shape[1]))[:, read.fixed :].double().mean(1))
        shares[1].append((guessed == read.ids)[:, read.fixed :].double().mean(1))
    return torch.stack(shares[0], 1), torch.stack(shares[1], 1)


def recognised(
    subject: Subject, text: Int[Tensor, "n"], layer: int, candidates: int, seed: int
) -> tuple[float, float, float]:
    """Whether tokens betray themselves when they are tried: of a decoder's permuted rows of one layer.

    Given the tokens before, each candidate is put behind them, and the vector that the model makes of it is looked
    for among the rows: the right one is there to the last digit. Candidates are drawn from the vocabulary, the right
    one among them.

    Returns:
        The share of places where the nearest pair is the right one; the median distance of the right pair; and that
        of the nearest wrong one.
    """
    facts, length = subject.facts, FROM + TRIED
    rows = streams(subject, Inputs(text[None, :length]))[layer][0]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(length, generator=generator)
    right, own, others = [], [], []
    for place in range(FROM, length):
        drawn = torch.randint(facts.vocabulary, (candidates,), generator=generator)
        drawn = torch.cat([text[place : place + 1], drawn[drawn != text[place]]])
        tried = torch.cat([text[:place].expand(len(drawn), -1), drawn[:, None]], 1)
        made = streams(subject, Inputs(tried))[layer][:, -1]
        apart = torch.cdist(made, rows[order], compute_mode="donot_use_mm_for_euclid_dist")
        spot = int((order == place).nonzero())
        right.append(int(apart.argmin()) == spot)
        own.append(float(apart[0, spot]))
        others.append(float(apart[1:].min()))
    return sum(right) / len(right), float(torch.tensor(own).median()), float(torch.tensor(others).median())


def _all_streams(subject: Subject, sample: Sample) -> list[Float[Tensor, "texts n width"]]:
    facts: Facts = subject.facts
    parts = [streams(subject, sample.given(rows)) for rows in sample.parts(facts)]
    return [torch.cat(layer).float() for layer in zip(*parts, strict=True)]


def _nearest(rows: Float[Tensor, "texts n width"], among: Float[Tensor, "many width"]) -> Int[Tensor, "texts n"]:
    return torch.stack([torch.cdist(row, among).argmin(-1) for row in rows])


def _means_by_token(
    rows: Float[Tensor, "texts n width"], ids: Int[Tensor, "texts n"]
) -> tuple[Int[Tensor, "tokens"], Float[Tensor, "tokens width"]]:
    tokens, which, counts = ids.flatten().unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(tokens), rows.shape[-1]).index_add(0, which, rows.flatten(0, 1))
    return tokens, sums / counts[:, None]
