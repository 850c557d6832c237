"""Reconstruction attacks: recover tokens and positions from permuted residual-stream vectors, knowing the model."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.probing._adapter import Inputs, ModelAdapter, ModelInfo
from ordinate.probing.measures.samples import Sample, residual_streams

# candidate search: texts, vectors of each that are attacked, and tokens before the first of them
SEARCHED_TEXTS, SEARCHED_TOKENS, CONTEXT_TOKENS = 4, 6, 4


@dataclass(frozen=True, eq=False)
class AttackData:
    """Data of an attack: the observed vectors and the attacker's reference texts.

    Args:
        secret: residual-stream vectors of the attacked texts, per layer.
        ids: their tokens: the ground truth.
        public: residual-stream vectors of reference texts, per layer.
        known: tokens of the reference texts.
        fixed: leading tokens of each text that are not secret; not scored.
    """

    secret: list[Float[Tensor, "texts n width"]]
    ids: Int[Tensor, "texts n"]
    public: list[Float[Tensor, "others n width"]]
    known: Int[Tensor, "others n"]
    fixed: int

    @classmethod
    def of(cls, subject: ModelAdapter, secret: Sample, public: Sample) -> "AttackData":
        """Run the model on the secret and on the public texts."""
        if secret.ids is None or public.ids is None:
            raise ValueError("the attack needs texts; got images; pass texts")
        own, others = (_all_streams(subject, texts) for texts in (secret, public))
        return cls(own, secret.ids, others, public.ids, secret.fixed)

    def rehearsal(self) -> "AttackData":
        """The attack of one half of the public texts by the other: what an attacker can try beforehand."""
        secret, public = ([layer[half::2] for layer in self.public] for half in (1, 0))
        return AttackData(secret, self.known[1::2], public, self.known[0::2], self.fixed)

    def guessed(self) -> Float[Tensor, "texts"]:
        """Fraction of tokens recovered without any vector: always guessing the most frequent public token."""
        tokens, counts = self.known[:, self.fixed :].unique(return_counts=True)
        return (self.ids == tokens[counts.argmax()])[:, self.fixed :].double().mean(1)


def nearest_mean_attack(
    read: AttackData, *, sort_columns: bool
) -> tuple[Float[Tensor, "texts layers"], Float[Tensor, "texts layers"]]:
    """Fraction of vectors whose position, and whose token, are recovered in each layer by the nearest class mean.

    The class means (one per position, one per token) come from the public texts. Every vector is classified by
    itself, so that a permutation of the rows makes no difference.

    Args:
        read: vectors of the secret and of the public texts.
        sort_columns: the columns are permuted too: compare sorted vectors, which no permutation of columns changes.
    """
    shares: tuple[list[Tensor], list[Tensor]] = ([], [])
    for seen, learned in zip(read.secret, read.public, strict=True):
        rows, others = (x.sort(-1).values if sort_columns else x for x in (seen, learned))
        places = _nearest(rows, others.mean(0))
        tokens, means = _means_by_token(others, read.known)
        guessed = tokens[_nearest(rows, means)]
        shares[0].append((places == torch.arange(rows.shape[1]))[:, read.fixed :].double().mean(1))
        shares[1].append((guessed == read.ids)[:, read.fixed :].double().mean(1))
    return torch.stack(shares[0], 1), torch.stack(shares[1], 1)


def candidate_search_attack(
    subject: ModelAdapter, text: Int[Tensor, "n"], layer: int, candidates: int, seed: int
) -> tuple[float, float, float]:
    """Candidate-search attack on the permuted rows of one layer of a decoder.

    Given the preceding tokens, each candidate token is appended and the resulting vector is searched among the
    observed rows: the vector of the correct candidate matches one exactly. Candidates are drawn from the vocabulary
    without special tokens, and include the correct token.

    Returns:
        The fraction of positions where the correct (candidate, row) pair is nearer than every other; the median
        distance of the correct pair; and that of the nearest wrong candidate.
    """
    known, length = subject.info.ordinary_tokens, CONTEXT_TOKENS + SEARCHED_TOKENS
    rows = residual_streams(subject, Inputs(text[None, :length]))[layer][0]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(length, generator=generator)
    right, own, others = [], [], []
    for place in range(CONTEXT_TOKENS, length):
        drawn = known[torch.randint(len(known), (candidates,), generator=generator)]
        drawn = torch.cat([text[place : place + 1], drawn[drawn != text[place]]])
        tried = torch.cat([text[:place].expand(len(drawn), -1), drawn[:, None]], 1)
        made = residual_streams(subject, Inputs(tried))[layer][:, -1]
        distances = torch.cdist(made, rows[order], compute_mode="donot_use_mm_for_euclid_dist")
        spot = int((order == place).nonzero())
        # a tie is no recovery: it would be a guess
        right.append(int((distances <= distances[0, spot]).sum()) == 1)
        own.append(float(distances[0, spot]))
        others.append(float(distances[1:].min()))
    return sum(right) / len(right), float(torch.tensor(own).median()), float(torch.tensor(others).median())


def _all_streams(subject: ModelAdapter, sample: Sample) -> list[Float[Tensor, "texts n width"]]:
    facts: ModelInfo = subject.info
    parts = [residual_streams(subject, sample.inputs(rows)) for rows in sample.batches(facts)]
    return [torch.cat(layer).float() for layer in zip(*parts, strict=True)]


def _nearest(rows: Float[Tensor, "texts n width"], among: Float[Tensor, "many width"]) -> Int[Tensor, "texts n"]:
    return torch.stack([torch.cdist(row, among).argmin(-1) for row in rows])


def _means_by_token(
    rows: Float[Tensor, "texts n width"], ids: Int[Tensor, "texts n"]
) -> tuple[Int[Tensor, "tokens"], Float[Tensor, "tokens width"]]:
    tokens, which, counts = ids.flatten().unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(tokens), rows.shape[-1]).index_add(0, which, rows.flatten(0, 1))
    return tokens, sums / counts[:, None]
