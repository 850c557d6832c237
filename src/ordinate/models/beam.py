"""Beam search for encoder-decoder models."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.checks import need, need_number, need_positive_counts
from ordinate.core.memory import need_memory
from ordinate.models._generate import check_supports_cache, evaluation_mode
from ordinate.models.cache import Cache
from ordinate.models.encoded_source import EncodedSource
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.score_changes import MINUS_INFINITY


@dataclass(frozen=True, eq=False)
class BeamSearchResult:
    """Best hypotheses for each source, in descending order of score.

    Args:
        ids: token ids, including the end token, right-padded.
        scores: log-probability divided by length^penalty [nats]; -inf where there are fewer hypotheses.
    """

    ids: Int[Tensor, "b beams n"]
    scores: Float[Tensor, "b beams"]


def beam_search(
    model: EncoderDecoder,
    memory: EncodedSource,
    max_new_tokens: int,
    *,
    beams: int = 4,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
) -> BeamSearchResult:
    """Generate target sequences by beam search with a length penalty and the rules of `model.shape.rules`.

        score(y | x) = sum_t log p(y_t | y_1 .. y_(t-1), x) / length(y)^penalty

    In each step every unfinished beam is extended by every token, and the `beams` best extensions are kept. Finished
    hypotheses are stored. The search for a source stops when its best beam, if it ended now, would score no better
    than the worst of `beams` stored hypotheses; this is a heuristic where longer sequences may score higher.

    Args:
        model: encoder-decoder model.
        memory: encoded sources, from `model.encode_source`.
        max_new_tokens: maximum number of generated tokens, including the end token.
        beams: beam size; 1 is greedy decoding.
        length_penalty: 0 compares total log-probabilities, which favours short sequences; 1 compares means; larger
            values favour long sequences; from -5 to 5.
        early_stopping: stop as soon as `beams` hypotheses are finished.

    Raises:
        ValueError: invalid settings, or a model that does not support incremental decoding.
    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, whose penalty is ((5 + length) / 6)^penalty;
        the penalty and the stopping rule are those of transformers 5, so that both generate the same sequences.
    """
    need_positive_counts(max_new_tokens=max_new_tokens, beams=beams)
    need_number("length_penalty", length_penalty)
    # length ** penalty then stays within float32 for ten million tokens
    penalty_range = "length_penalty must lie between -5 and 5"
    need(abs(length_penalty) <= 5, penalty_range, f"got {length_penalty}", "give one near 1")
    tokens = model.shape.vocabulary - len(model.shape.rules.never(model.shape.end_tokens))
    came = f"got {beams} beams for {tokens} tokens"
    kept = _candidates(beams, len(model.shape.end_tokens))
    need(kept <= tokens, f"beams times {kept // beams} must be at most the vocabulary", came, "give fewer beams")
    what = f"hypotheses of max_new_tokens={max_new_tokens} and beams={beams}"
    need_memory(what, 8 * memory.batch_size * beams * max_new_tokens)
    check_supports_cache(model.decoder.blocks)
    with torch.inference_mode(), evaluation_mode(model):
        search = _Search(model, memory, max_new_tokens, beams, length_penalty)
        for step in range(1, max_new_tokens + 1):
            search.step(step)
            if not bool(search.undecided(step, early_stopping).any()):
                break
        return search.best()


class _Search:
    """Search state of all sources: running beams, finished hypotheses, and which sources are not done."""

    def __init__(self, model: EncoderDecoder, memory: EncodedSource, count: int, beams: int, penalty: float) -> None:
        self.model, self.count, self.beams, self.penalty = model, count, beams, penalty
        self.kept = _candidates(beams, len(model.shape.end_tokens))
        device, rows = memory.where.k_pos.device, memory.batch_size
        self.first = torch.arange(rows, device=device)[:, None] * beams
        self.memory, self.cache = memory.select_rows(self.first.flatten().repeat_interleave(beams) // beams), Cache()
        self.texts = torch.full((rows, beams, 1), model.shape.start_token, device=device)
        self.ends = torch.tensor(model.shape.end_tokens, dtype=torch.long, device=device)
        # all beams start identical: only the first may be extended in the first step
        self.running = torch.full((rows, beams), MINUS_INFINITY, device=device)
        self.running[:, 0] = 0.0
        self.ended = torch.full((rows, beams, count), model.shape.fill_token, device=device)
        self.scores = torch.full((rows, beams), MINUS_INFINITY, device=device)
        self.lengths = torch.zeros_like(self.scores, dtype=torch.long)
        self.open = torch.ones(rows, dtype=torch.bool, device=device)

    def step(self, step: int) -> None:
        """Extend every beam by one token."""
        found, parent, token = self._continuations(last=step == self.count)
        texts = torch.cat([_pick(self.texts, parent), token[..., None]], 2)
        over = torch.isin(token, self.ends) | (step == self.count)
        # of the candidates only the best `beams` may finish; the rest refill the beams when those do
        counts = over & self.open[:, None] & (torch.arange(self.kept, device=over.device) < self.beams)
        self._store(texts[..., 1:], (found / step**self.penalty).masked_fill(~counts, MINUS_INFINITY))
        self.running, chosen = found.masked_fill(over, MINUS_INFINITY).topk(self.beams)
        self.texts = _pick(texts, chosen)
        self.cache = self.cache.select_rows((self.first + parent.gather(1, chosen)).flatten())

    def undecided(self, step: int, early: bool) -> Tensor:
        """Mask of the sources whose search is not finished."""
        worst = self.scores.amin(1)
        self.open &= self.running[:, 0] / step**self.penalty > worst
        if early:
            self.open &= worst == MINUS_INFINITY
        return self.open

    def best(self) -> BeamSearchResult:
        """Return the finished hypotheses."""
        return BeamSearchResult(self.ended[..., : int(self.lengths.max())], self.scores)

    def _continuations(self, *, last: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Best extensions of each source: scores, beam indices, tokens."""
        new, shape, texts = self.texts[..., -1].reshape(-1, 1), self.model.shape, self.texts.flatten(0, 1)
        logits = self.model.target_logits(new, self.memory, cache=self.cache)[:, -1].float()
        given = {"prompt": 1, "source": self.memory.ids, "ends": shape.end_tokens}
        log_probs = shape.rules.apply(logits.log_softmax(-1), texts, **given, last=last)
        total = self.running[..., None] + log_probs.view(*self.running.shape, -1)
        found, index = total.flatten(1).topk(self.kept)
        return found, index // log_probs.shape[-1], index % log_probs.shape[-1]

    def _store(self, texts: Tensor, scores: Tensor) -> None:
        longer = torch.nn.functional.pad(texts, (0, self.count - texts.shape[2]), value=self.model.shape.fill_token)
        self.scores, kept = torch.cat([self.scores, scores], 1).topk(self.beams)
        self.ended = _pick(torch.cat([self.ended, longer], 1), kept)
        lengths = torch.full(scores.shape, texts.shape[2], device=scores.device).masked_fill(
            scores == MINUS_INFINITY, 0
        )
        self.lengths = torch.cat([self.lengths, lengths], 1).gather(1, kept)


def _candidates(beams: int, ends: int) -> int:
    """Return how many extensions are considered: as many as leave `beams` if each beam ends in every way."""
    return max(2, 1 + ends) * beams


def _pick(texts: Int[Tensor, "b some n"], which: Int[Tensor, "b chosen"]) -> Int[Tensor, "b chosen n"]:
    return texts.gather(1, which[..., None].expand(-1, -1, texts.shape[2]))
