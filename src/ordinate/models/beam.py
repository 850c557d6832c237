"""Search for the likeliest text that an encoder-decoder can write."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.checks import need, need_number, need_positive, need_whole
from ordinate.models.cache import Cache
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.generate import check_streams, evaluating
from ordinate.models.memory import Memory

NEVER = float("-inf")


@dataclass(frozen=True, eq=False)
class Beams:
    """The best texts that were found for each source, the best first.

    Args:
        ids: their tokens, the end included, filled up behind it.
        scores: log-probability of each over its length to the power of the penalty [nats]; -inf where none was found.
    """

    ids: Int[Tensor, "b beams n"]
    scores: Float[Tensor, "b beams"]


def beam_search(
    model: EncoderDecoder,
    memory: Memory,
    count: int,
    *,
    beams: int = 4,
    length_penalty: float = 1.0,
    early: bool = False,
) -> Beams:
    """The texts of the highest score among those that are tried.

        score(y | x) = sum_t log p(y_t | y_1 .. y_(t-1), x) / length(y)^penalty

    In each step every beam, a text that has not ended yet, is continued by every token, and the `beams` best of all
    continuations go on. Those that end are set aside; a source is done when its best beam, were it to end now, would
    be no better than the worst of `beams` texts set aside. That is a guess where longer texts may score higher.

    Args:
        model: what writes.
        memory: the sources, as `model.read` gave them.
        count: how many tokens to write at most, the end included.
        beams: how many texts are kept; 1 is greedy.
        length_penalty: 0 compares log-probabilities, which favours short texts; 1 their mean; more favours long ones.
        early: stop as soon as there are `beams` texts.

    Raises:
        ValueError: settings that have no meaning, or a model that cannot go on from what it has written.
    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, whose penalty is ((5 + length) / 6)^penalty;
        the penalty and the rule to stop are those of transformers 5, so that both write the same.
    """
    for name, value in (("count", count), ("beams", beams)):
        need_whole(name, value)
        need_positive(name, value)
    need_number("length_penalty", length_penalty)
    tokens = model.shape.vocabulary - len(model.shape.never)
    need(2 * beams <= tokens, "a beam needs two tokens", f"got {beams} beams for {tokens} tokens", "give fewer beams")
    check_streams(model.decoder.blocks)
    with torch.inference_mode(), evaluating(model):
        search = _Search(model, memory, count, beams, length_penalty)
        for step in range(1, count + 1):
            search.step(step)
            if not bool(search.undecided(step, early).any()):
                break
        return search.best()


class _Search:
    """What is known of each source: texts that go on, texts that have ended, and whether better ones may come."""

    def __init__(self, model: EncoderDecoder, memory: Memory, count: int, beams: int, penalty: float) -> None:
        self.model, self.count, self.beams, self.penalty = model, count, beams, penalty
        device, rows = memory.where.k_pos.device, memory.rows
        self.first = torch.arange(rows, device=device)[:, None] * beams
        self.memory, self.cache = memory.take(self.first.flatten().repeat_interleave(beams) // beams), Cache()
        self.texts = torch.full((rows, beams, 1), model.shape.start, device=device)
        # all beams begin alike: only the first counts
        self.running = torch.full((rows, beams), NEVER, device=device)
        self.running[:, 0] = 0.0
        self.ended = torch.full((rows, beams, count), model.shape.padding, device=device)
        self.scores = torch.full((rows, beams), NEVER, device=device)
        self.lengths = torch.zeros_like(self.scores, dtype=torch.long)
        self.open = torch.ones(rows, dtype=torch.bool, device=device)

    def step(self, step: int) -> None:
        """Continue every beam by a token."""
        found, parent, token = self._continuations()
        texts = torch.cat([_pick(self.texts, parent), token[..., None]], 2)
        over = (token == self.model.shape.end) | (step == self.count)
        # the second half is there so that enough are left when the best have ended
        counts = over & self.open[:, None] & (torch.arange(2 * self.beams, device=over.device) < self.beams)
        self._set_aside(texts[..., 1:], (found / step**self.penalty).masked_fill(~counts, NEVER))
        self.running, chosen = found.masked_fill(over, NEVER).topk(self.beams)
        self.texts = _pick(texts, chosen)
        self.cache = self.cache.take((self.first + parent.gather(1, chosen)).flatten())

    def undecided(self, step: int, early: bool) -> Tensor:
        """The sources for which a better text may still come."""
        worst = self.scores.amin(1)
        self.open &= self.running[:, 0] / step**self.penalty > worst
        if early:
            self.open &= worst == NEVER
        return self.open

    def best(self) -> Beams:
        """What has ended."""
        return Beams(self.ended[..., : int(self.lengths.max())], self.scores)

    def _continuations(self) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each source, twice as many as beams: score, beam, token."""
        new = self.texts[..., -1].reshape(-1, 1)
        logits = self.model.write(new, self.memory, cache=self.cache)[:, -1].float()
        said = logits.log_softmax(-1)
        said[:, list(self.model.shape.never)] = NEVER
        total = self.running[..., None] + said.view(*self.running.shape, -1)
        found, index = total.flatten(1).topk(2 * self.beams)
        return found, index // said.shape[-1], index % said.shape[-1]

    def _set_aside(self, texts: Tensor, scores: Tensor) -> None:
        longer = torch.nn.functional.pad(texts, (0, self.count - texts.shape[2]), value=self.model.shape.padding)
        self.scores, kept = torch.cat([self.scores, scores], 1).topk(self.beams)
        self.ended = _pick(torch.cat([self.ended, longer], 1), kept)
        lengths = torch.full(scores.shape, texts.shape[2], device=scores.device).masked_fill(scores == NEVER, 0)
        self.lengths = torch.cat([self.lengths, lengths], 1).gather(1, kept)


def _pick(texts: Int[Tensor, "b some n"], which: Int[Tensor, "b chosen"]) -> Int[Tensor, "b chosen n"]:
    return texts.gather(1, which[..., None].expand(-1, -1, texts.shape[2]))
