"""Rules of generation that change the scores of the next token, in the order of transformers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ordinate.core.checks import need, need_counts, need_number, need_positive
from ordinate.core.option_values import normalise_fields
from ordinate.models.score_changes import (
    MINUS_INFINITY,
    NO_TOKEN,
    Scores,
    Sources,
    Texts,
    add_sequence_bias,
    favour_ends,
    forbid,
    forbid_ngrams,
    force,
    normalise,
    penalize_repetition,
)

LEFT_OUT = "leave it out"
# exp(69) = 1e30, times a logit, is finite in float32
LARGEST_EXPONENT = 69.0


@dataclass(frozen=True)
class NextTokenRules:
    """Rules that change the scores of the next token, by their names in generation_config.json of transformers.

    The text of a decoder has its prompt, that of an encoder-decoder the start token. Padding is no part of it.

    Args:
        sequence_bias: sequences of tokens, each with what is added to the score of a token that completes it.
        encoder_repetition_penalty: factor of the scores of the tokens of the source where they are positive, and
            divisor where they are negative. The source of a decoder is its prompt.
        repetition_penalty: divisor of the scores of tokens that the text has already, where they are positive, and
            factor where they are negative. Scores are logits; in beam search, log-probabilities.
        no_repeat_ngram_size: length of the sequences of tokens that no text has twice; 0: texts may have any.
        encoder_no_repeat_ngram_size: length of the sequences of tokens of the source that no text has; 0: any.
        bad_words_ids: sequences of tokens that are never completed; a single end token has no effect here.
        min_length: tokens that a text has before it may end.
        min_new_tokens: generated tokens that a text has before it may end, in place of `min_length`.
        forced_bos_token_id: second token of a text whose first token alone was given; None: any.
        forced_eos_token_id: tokens one of which comes last where a text reaches its greatest length; (): any.
        exponential_decay_length_penalty: number of generated tokens n, and a factor f: to the score of an end token
            as generated token t + 1, where t > n, its size times f^(t - n) - 1 is added.
        suppress_tokens: tokens that are never generated.
        begin_suppress_tokens: tokens with which no generated text begins; a forced second token does not count.
        renormalize_logits: whether scores become log-probabilities of the tokens that are left, which matters to
            beam search.

    Raises:
        ValueError: a penalty that is not above zero, a negative length, an empty sequence, forced tokens that are
            all suppressed, `renormalize_logits` without another rule that changes probabilities.
    Source: the logits processors of transformers 5.
    """

    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = ()
    encoder_repetition_penalty: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    encoder_no_repeat_ngram_size: int = 0
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    min_length: int = 0
    min_new_tokens: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: tuple[int, ...] = ()
    exponential_decay_length_penalty: tuple[int, float] | None = None
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    renormalize_logits: bool = False

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name in ("encoder_repetition_penalty", "repetition_penalty"):
            need_positive(name, getattr(self, name))
        for name in ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"):
            need_counts(**{name: getattr(self, name) or 0})
        for _, bias in self.sequence_bias:
            need_number("a bias of sequence_bias", bias)
        for name, sequences in (("bad_words_ids", self.bad_words_ids), ("sequence_bias", self._biased)):
            must = f"{name} must have one token or more in each sequence"
            need(all(sequences), must, "got an empty one", LEFT_OUT)
        if self.exponential_decay_length_penalty is not None:
            start, factor = self.exponential_decay_length_penalty
            need_counts(**{"the start of exponential_decay_length_penalty": start})
            need_positive("the factor of exponential_decay_length_penalty", factor)
        suppressed = set(self.suppress_tokens)
        ends = suppressed and set(self.forced_eos_token_id)
        need(
            self.forced_bos_token_id not in suppressed and (not ends or not ends <= suppressed),
            "suppress_tokens must leave forced_bos_token_id and one of forced_eos_token_id",
            f"got {self.suppress_tokens}",
            "leave them out of suppress_tokens",
        )
        need(
            not self.renormalize_logits or self.changes_probabilities,
            "renormalize_logits has an effect only with another rule that changes probabilities",
            "got renormalize_logits=True without any",
            "give one, such as suppress_tokens, or leave it out",
        )

    def check(self, vocabulary: int, ends: Sequence[int]) -> None:
        """Raise a ValueError unless the tokens lie in the vocabulary, and there is an end token where one matters.

        Args:
            vocabulary: tokens of the model.
            ends: its end tokens.
        """
        named = ("suppress_tokens", "begin_suppress_tokens", "forced_eos_token_id")
        listed = {name: getattr(self, name) for name in named} | {"forced_bos_token_id": (self.forced_bos_token_id,)}
        listed["bad_words_ids"] = [token for word in self.bad_words_ids for token in word]
        listed["sequence_bias"] = [token for sequence in self._biased for token in sequence]
        for name, tokens in listed.items():
            wrong = next((token for token in tokens if token is not None and not 0 <= token < vocabulary), None)
            must = f"tokens of {name} must lie in 0 to {vocabulary - 1}"
            need(wrong is None, must, f"got {wrong}", "take them from the tokenizer")
        for name in ("min_length", "min_new_tokens", "exponential_decay_length_penalty"):
            value = getattr(self, name)
            came = f"got {name}={value!r} without one"
            need(not value or bool(ends), f"{name} needs an end token", came, f"give an end token, or {LEFT_OUT}")

    @property
    def active(self) -> dict[str, Any]:
        """The rules that have an effect, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if self._differs(field.name)}

    @property
    def changes_probabilities(self) -> bool:
        """Whether probabilities are others beside those of forced tokens, which are 1."""
        return bool(self.active.keys() - {"renormalize_logits", "forced_bos_token_id", "forced_eos_token_id"})

    def never(self, ends: Sequence[int]) -> set[int]:
        """Tokens that no text has, beside the tokens that are forced."""
        return {*self.suppress_tokens, *(word[0] for word in self._forbidden_words(ends) if len(word) == 1)}

    def apply(
        self, scores: Scores, texts: Texts, *, prompt: int, source: Sources, ends: Sequence[int], last: bool
    ) -> Scores:
        """Return the scores of the next token, changed by the rules.

        Args:
            scores: logits, or log-probabilities in beam search.
            texts: the tokens so far, -1 at padding, which is on the left.
            prompt: tokens of `texts` that were given, with padding.
            source: tokens of the source, -1 at padding.
            ends: end tokens.
            last: whether the next token is the last that a text may have.
        """
        if self.sequence_bias:
            scores = add_sequence_bias(scores, texts, self.sequence_bias)
        if self.encoder_repetition_penalty != 1:
            scores = penalize_repetition(scores, source, 1 / self.encoder_repetition_penalty)
        if self.repetition_penalty != 1:
            scores = penalize_repetition(scores, texts, self.repetition_penalty)
        scores = forbid_ngrams(scores, texts, self.no_repeat_ngram_size, texts)
        scores = forbid_ngrams(scores, texts, self.encoder_no_repeat_ngram_size, source)
        if words := self._forbidden_words(ends):
            scores = add_sequence_bias(scores, texts, [(word, MINUS_INFINITY) for word in words])
        scores = self._lengths(scores, texts, texts.shape[1] - prompt, ends, last=last)
        if self.suppress_tokens:
            scores = forbid(scores, self.suppress_tokens)
        if self.begin_suppress_tokens:
            new, length = texts.shape[1] - prompt, (texts != NO_TOKEN).sum(1)
            forced = (length - new <= 1) & (self.forced_bos_token_id is not None)
            scores = forbid(scores, self.begin_suppress_tokens, forced.long() == new)
        return normalise(scores) if self.renormalize_logits else scores

    def _lengths(self, scores: Scores, texts: Texts, new: int, ends: Sequence[int], *, last: bool) -> Scores:
        """Apply the rules on the length of a text, of which `new` tokens were generated."""
        length = (texts != NO_TOKEN).sum(1)
        if self.min_new_tokens is None and self.min_length:
            scores = forbid(scores, ends, length < self.min_length)
        elif new < (self.min_new_tokens or 0):
            scores = forbid(scores, ends)
        if self.forced_bos_token_id is not None:
            scores = force(scores, [self.forced_bos_token_id], length == 1)
        if self.forced_eos_token_id and last:
            scores = force(scores, self.forced_eos_token_id)
        start, factor = self.exponential_decay_length_penalty or (new, 1.0)
        if new > start and factor != 1:
            steps = new - start if factor < 1 else min(new - start, LARGEST_EXPONENT / math.log(factor))
            scores = favour_ends(scores, ends, factor**steps - 1)
        return scores

    def _forbidden_words(self, ends: Sequence[int]) -> list[tuple[int, ...]]:
        return [word for word in self.bad_words_ids if word not in {(end,) for end in ends}]

    def _differs(self, name: str) -> bool:
        return getattr(self, name) != getattr(type(self), name)

    @property
    def _biased(self) -> list[tuple[int, ...]]:
        return [sequence for sequence, _ in self.sequence_bias]


NO_RULES = NextTokenRules()
