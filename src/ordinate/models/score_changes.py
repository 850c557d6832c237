"""Changes of the scores of the next token by what a text has already; texts have -1 at padding."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Scores = Float[Tensor, "b vocabulary"]
Texts = Int[Tensor, "b n"]
Sources = Int[Tensor, "b m"]
MINUS_INFINITY = float("-inf")
NO_TOKEN = -1
"""Id at padding, which no rule reads."""


def penalize_repetition(scores: Scores, texts: Sources, penalty: float) -> Scores:
    """Return the scores with those of tokens in the text divided by `penalty` if positive, or multiplied by it.

    Source: Keskar et al. 2019, section 4.1, https://arxiv.org/abs/1909.05858; negative scores as in transformers.
    """
    return torch.where(_occurring(texts, scores), torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def forbid_ngrams(scores: Scores, texts: Texts, size: int, sources: Sources) -> Scores:
    """Return the scores without tokens that would complete `size` tokens of the source in the same order; 0: all."""
    if size == 0 or sources.shape[1] < size or texts.shape[1] < size - 1:
        return scores
    ngrams = sources.unfold(1, size, 1)
    begun = texts[:, None, texts.shape[1] - size + 1 :]
    repeats = (ngrams[..., :-1] == begun).all(-1)
    completing = ngrams[..., -1].masked_fill(~repeats, NO_TOKEN)
    return scores.masked_fill(_occurring(completing, scores), MINUS_INFINITY)


def add_sequence_bias(scores: Scores, texts: Texts, biases: Iterable[tuple[Sequence[int], float]]) -> Scores:
    """Return the scores plus a bias for each token that completes one of these sequences of tokens."""
    total = torch.zeros_like(scores)
    for size, group in groupby(sorted(biases, key=lambda pair: len(pair[0])), key=lambda pair: len(pair[0])):
        if size > texts.shape[1] + 1:
            break
        sequences, values = zip(*group, strict=True)
        tokens = torch.tensor(sequences, device=texts.device)
        bias = torch.tensor(values, dtype=scores.dtype, device=scores.device)
        begun = (texts[:, None, texts.shape[1] - size + 1 :] == tokens[:, :-1]).all(-1)
        total.index_add_(1, tokens[:, -1], torch.where(begun, bias, 0.0))
    return scores + total


def favour_ends(scores: Scores, ends: Sequence[int], growth: float) -> Scores:
    """Return the scores with the size of those of end tokens, where finite, added `growth` times."""
    index = _index(ends, scores)
    ending = scores[:, index]
    added = (ending.abs() * growth).masked_fill(~ending.isfinite(), 0.0)
    return scores.index_copy(1, index, ending + added)


def forbid(scores: Scores, tokens: Sequence[int], rows: Bool[Tensor, "b"] | None = None) -> Scores:
    """Return the scores without these tokens, in some rows; None: in all."""
    without = scores.index_fill(1, _index(tokens, scores), MINUS_INFINITY)
    return without if rows is None else torch.where(rows[:, None], without, scores)


def force(scores: Scores, tokens: Sequence[int], rows: Bool[Tensor, "b"] | None = None) -> Scores:
    """Return scores of which these tokens are the only choice, each alike, in some rows; None: in all."""
    only = torch.full_like(scores, MINUS_INFINITY).index_fill(1, _index(tokens, scores), 0.0)
    return only if rows is None else torch.where(rows[:, None], only, scores)


def normalise(scores: Scores) -> Scores:
    """Return log-probabilities; -inf also where no token is left, for which `log_softmax` gives NaN."""
    return scores.log_softmax(-1).masked_fill(scores == MINUS_INFINITY, MINUS_INFINITY)


def _occurring(tokens: Sources, scores: Scores) -> Bool[Tensor, "b vocabulary"]:
    """Mask of the tokens that occur in each row; ids outside of the vocabulary, as a source may have, do not."""
    rows, words = scores.shape
    inside = torch.where((tokens < 0) | (tokens > words), words, tokens)
    return torch.zeros(rows, words + 1, dtype=torch.bool, device=scores.device).scatter(1, inside, value=True)[:, :-1]


def _index(tokens: Sequence[int], scores: Scores) -> Int[Tensor, "k"]:
    return torch.tensor(tokens, dtype=torch.long, device=scores.device)
