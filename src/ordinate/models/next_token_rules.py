"""Rules of generation that change the scores of the next token, in the order of transformers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.models.encoder_decoder_shape import EncoderDecoderShape

Scores = Float[Tensor, "b vocabulary"]
Texts = Int[Tensor, "b n"]
MINUS_INFINITY = float("-inf")


def apply_rules(shape: EncoderDecoderShape, scores: Scores, texts: Texts, *, last: bool) -> Scores:
    """Return the scores of the next token, changed by the rules of a model.

    Args:
        shape: hyperparameters, which have the rules.
        scores: logits, or log-probabilities in beam search.
        texts: the tokens so far, with the start token.
        last: whether the next token is the last that a text may have.
    """
    length = texts.shape[1]
    scores = penalize_repetition(scores, texts, shape.repetition_penalty)
    scores = forbid_repeated_ngrams(scores, texts, shape.no_repeat_ngram_size)
    early = shape.end_tokens if length < shape.min_length else ()
    scores = scores.index_fill(1, _indices(scores, (*shape.suppress_tokens, *early)), MINUS_INFINITY)
    if shape.first_token is not None and length == 1:
        scores = _only(scores, shape.first_token)
    if shape.force_end and last:
        scores = _only(scores, shape.end_token)
    return scores.log_softmax(-1) if shape.renormalize else scores


def penalize_repetition(scores: Scores, texts: Texts, penalty: float) -> Scores:
    """Return the scores with those of tokens in the text divided by `penalty` if positive, or multiplied by it.

    Source: Keskar et al. 2019, section 4.1, https://arxiv.org/abs/1909.05858; negative scores as in transformers.
    """
    seen = scores.gather(1, texts)
    return scores.scatter(1, texts, torch.where(seen < 0, seen * penalty, seen / penalty))


def forbid_repeated_ngrams(scores: Scores, texts: Texts, size: int) -> Scores:
    """Return the scores without the tokens that would repeat `size` tokens of the text in the same order; 0: all."""
    if size == 0 or texts.shape[1] < size:
        return scores
    ngrams = texts.unfold(1, size, 1)
    begun = texts[:, None, texts.shape[1] - size + 1 :]
    repeats = (ngrams[..., :-1] == begun).all(-1)
    forbidden = torch.zeros_like(scores).scatter_add(1, ngrams[..., -1], repeats.to(scores.dtype)) > 0
    return scores.masked_fill(forbidden, MINUS_INFINITY)


def _only(scores: Scores, token: int) -> Scores:
    """Return scores of which this token is the only choice: its probability is 1."""
    alone = torch.full_like(scores, MINUS_INFINITY)
    alone[:, token] = 0.0
    return alone


def _indices(scores: Scores, tokens: Sequence[int]) -> Int[Tensor, " k"]:
    return torch.tensor(tokens, dtype=torch.long, device=scores.device)
