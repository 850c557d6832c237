"""Kinds of attention heads: offset, first-token, induction and duplicate-token heads, each against its null."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.finding import Table
from ordinate.ops.stats.bootstrap import mean_intervals
from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.ops.stats.permutation_tests import exact_sign_flip_test
from ordinate.probing._adapter import (
    MASKED_SCORE,
    AttentionRecord,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    NotApplicable,
)

# attention above the null that makes a head one of a kind, and that makes it weakly one [share of attention]
STRONG, WEAK = 0.5, 0.1
RATE = 0.05
# texts of two halves; with 16 the exact test resolves p-values of 1.5e-5, as the correction over many heads needs
TEXTS, HALF, SHORTEST_HALF = 16, 32, 8
OFFSET, FIRST, INDUCTION, DUPLICATE = "offset", "first token", "induction", "duplicate token"

Scores = Float[ndarray, "texts layers h"]


@dataclass(frozen=True, eq=False)
class KindScores:
    """How far each head is of one kind.

    Args:
        name: offset, first token, induction or duplicate token.
        value: share of attention on the token in question, mean over texts.
        null: the same under the null hypothesis.
        low: lower end of the 95 % interval of value - null.
        high: its upper end.
        adjusted_p: p-value of value > null, adjusted over all heads and kinds.
        excess: value - null of each text.
    """

    name: str
    value: Float[ndarray, "layers h"]
    null: Float[ndarray, "layers h"]
    low: Float[ndarray, "layers h"]
    high: Float[ndarray, "layers h"]
    adjusted_p: Float[ndarray, "layers h"]
    excess: Float[ndarray, "texts layers h"]

    def verdict(self, layer: int, head: int) -> str:
        """Return yes (at least half of the attention above the null), weakly (a tenth), no, or cannot be told."""
        excess = float((self.value - self.null)[layer, head])
        significant = self.adjusted_p[layer, head] <= RATE
        if significant and excess >= WEAK:
            return "yes" if excess >= STRONG else "weakly"
        return "no" if self.high[layer, head] < WEAK else "cannot be told"


@dataclass(frozen=True, eq=False)
class HeadKinds:
    """The kinds of all heads.

    Args:
        kinds: the scores of each kind.
        offset: the offset with the most attention, query - key.
        reach: largest offset that was looked at [tokens].
        texts: number of texts in each arm.
        tokens: tokens of a text.
    """

    kinds: tuple[KindScores, ...]
    offset: Int[ndarray, "layers h"]
    reach: int
    texts: int
    tokens: int

    def labels(self, layer: int, head: int) -> list[tuple[str, str]]:
        """Return the kinds that a head is of, each with yes or weakly, the strongest first."""
        found = [(own, own.verdict(layer, head)) for own in self.kinds]
        kept = [(own, said) for own, said in found if said in ("yes", "weakly")]
        kept.sort(key=lambda one: -float((one[0].value - one[0].null)[layer, head]))
        return [(self.kind_name(own, layer, head), said) for own, said in kept]

    def unclear(self, layer: int, head: int) -> list[str]:
        """Return the kinds of which the texts do not tell whether a head is one."""
        return [own.name for own in self.kinds if own.verdict(layer, head) == "cannot be told"]

    def kind_name(self, kind: KindScores, layer: int, head: int) -> str:
        """Return the name of a kind; of offsets that of the offset: previous token, 7 back, itself."""
        return offset_name(int(self.offset[layer, head])) if kind.name == OFFSET else kind.name

    def table(self) -> Table:
        """Return a table with a row for each head and kind."""
        rows = [
            (f"{layer}.{head}", layer, head, self.kind_name(own, layer, head), own.verdict(layer, head),
             *(float(part[layer, head]) for part in (own.value, own.null, own.low, own.high, own.adjusted_p)))
            for layer, head in np.ndindex(*self.offset.shape)
            for own in self.kinds
        ]  # fmt: skip
        columns = ("name", "layer", "head", "kind", "verdict", "attention", "null", "above null from", "to", "p")
        caption = "Layers and heads are counted from 0. p: adjusted over all heads and kinds."
        return Table(title="Kinds of heads", columns=columns, rows=tuple(rows), caption=caption)


def offset_name(offset: int) -> str:
    """Name an offset: previous token, next token, itself, 7 back, 7 ahead."""
    names = {0: "itself", 1: "previous token", -1: "next token"}
    return names.get(offset, f"{abs(offset)} {'back' if offset > 0 else 'ahead'}")


def head_kinds(model: ModelAdapter, *, texts: int = TEXTS, half: int = HALF, seed: int = 0) -> HeadKinds:
    """Measure of which kind each head is, on texts of distinct random tokens.

    Two arms end in the same tokens s: in one they repeat the beginning, s s, in the other the beginning r has none of
    them, r s. So whatever depends on positions alone is equal in both.

        induction        attention to the token after the earlier occurrence, in s s; null: to that position in r s
        duplicate token  attention to the earlier occurrence, in s s; null: to that position in r s
        offset           attention at the offset that has the most in the other texts (r s), as a share of what is not
                         on the first token; null: uniform attention
        first token      attention to the first token of a text (r s); null: uniform attention

    Uniform attention is over the keys that a head can see: with a sliding window, those in it.
    Exact sign-flip tests over texts, Benjamini and Hochberg over heads and kinds; bootstrap intervals over texts.

    Args:
        model: a model of texts.
        texts: texts in each arm, 2 to 20.
        half: tokens of s; fewer if the model or its vocabulary is smaller.
        seed: seed of the tokens and of the bootstrap.

    Raises:
        ValueError: too few or many texts, or a `half` below 8.
        NotApplicable: the model takes images or too short texts, or its attention is not observable, or is
            cross-attention.
    Source: Olsson et al. 2022, In-context learning and induction heads,
        https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads (prefix matching).
    Departs: there the score has no null; here the same positions without the repetition.
    """
    need(2 <= texts <= 20, "kinds of heads need 2 to 20 texts", f"got {texts}", "give 16")
    need(half >= SHORTEST_HALF, f"half must be {SHORTEST_HALF} or more", f"got {half}", "give more tokens")
    model.info.need_one_text("kinds of heads")
    repeated, control, size = _texts(model.info, texts, half, seed)
    watch = _KindHooks(model.info, size)
    for ids in (repeated, control):
        watch.begin()
        model.forward(Inputs(ids), watch)
    arms = [{name: np.stack(layers, 1) for name, layers in arm.items()} for arm in watch.arms]
    chosen, of_others = _best_offsets(arms[1]["profile"])
    pairs = {
        OFFSET: (_at(arms[1]["profile"], of_others), _at(arms[1]["even profile"], of_others)),
        FIRST: (arms[1][FIRST], arms[1][f"even {FIRST}"]),
        INDUCTION: (arms[0][INDUCTION], arms[1][INDUCTION]),
        DUPLICATE: (arms[0][DUPLICATE], arms[1][DUPLICATE]),
    }
    offset = np.array(watch.offsets)[chosen]
    return HeadKinds(_scores(pairs, seed), offset, max(watch.offsets), texts, repeated.shape[1])


@dataclass(eq=False)
class _KindHooks(Hooks):
    """Attention of each text to the tokens in question.

    Args:
        facts: description of the model.
        size: tokens of half a text.
    """

    facts: ModelInfo
    size: int
    arms: list[dict[str, list[ndarray]]] = field(default_factory=list)
    skip_head = True

    def __post_init__(self) -> None:
        front = int(self.facts.first_token is not None)
        length, causal = front + 2 * self.size, self.facts.causal
        # queries for which every offset exists, none of them the first token
        reach = self.size - 1 if causal else length // 3
        self.offsets = list(range(0 if causal else -reach, reach + 1))
        self.rows = torch.arange(reach + 1, length if causal else length - reach)
        self.later = torch.arange(front + self.size, length)

    def begin(self) -> None:
        """Count the texts that follow for the next arm."""
        self.arms.append(defaultdict(list))

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        found, own = self.arms[-1], seen.pattern.double().cpu()
        visible = (seen.scores > MASKED_SCORE).double().cpu()
        # a head with a window spreads its attention over the window
        even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
        for arm, weights in (("", own), ("even ", even)):
            first = weights[:, :, self.rows, 0]
            left = (1 - first).sum(-1).clamp(min=1e-9)
            at = [weights[:, :, self.rows, self.rows - offset].sum(-1) / left for offset in self.offsets]
            found[f"{arm}profile"].append(torch.stack(at, -1).numpy())
            found[f"{arm}{FIRST}"].append(first.mean(-1).numpy())
        found[INDUCTION].append(own[:, :, self.later, self.later - self.size + 1].mean(-1).numpy())
        found[DUPLICATE].append(own[:, :, self.later, self.later - self.size].mean(-1).numpy())


def _texts(facts: ModelInfo, texts: int, half: int, seed: int) -> tuple[Tensor, Tensor, int]:
    """Return texts s s, texts r s, and the length of s; all tokens of r s are distinct."""
    if not facts.vocabulary:
        raise NotApplicable(f"{facts.name} takes images; kinds of heads are measured on texts")
    known = facts.ordinary_tokens
    front = [] if facts.first_token is None else [facts.first_token]
    room = len(known) if facts.max_length is None else min(len(known), facts.max_length - len(front))
    size = min(half, room // 2)
    if size < SHORTEST_HALF:
        raise NotApplicable(
            f"kinds of heads need texts of {2 * SHORTEST_HALF} distinct tokens; {facts.name} has room for {room}"
        )
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.stack([known[torch.randperm(len(known), generator=generator)[: 2 * size]] for _ in range(texts)])
    begun = torch.tensor(front, dtype=torch.long).expand(texts, -1)
    other, own = drawn[:, :size], drawn[:, size:]
    return torch.cat([begun, own, own], 1), torch.cat([begun, other, own], 1), size


def _best_offsets(profile: Float[ndarray, "texts layers h offsets"]) -> tuple[ndarray, ndarray]:
    """Return the index of the offset with the most attention, in all texts and for each text in the others."""
    total = profile.sum(0)
    return total.argmax(-1), (total[None] - profile).argmax(-1)


def _at(profile: Float[ndarray, "texts layers h offsets"], chosen: Int[ndarray, "texts layers h"]) -> Scores:
    return np.take_along_axis(profile, chosen[..., None], -1)[..., 0]


def _scores(pairs: dict[str, tuple[Scores, Scores]], seed: int) -> tuple[KindScores, ...]:
    excess = np.stack([value - null for value, null in pairs.values()], 1)
    p = benjamini_hochberg(exact_sign_flip_test(excess))
    _, low, high = mean_intervals(excess, seed)
    return tuple(
        KindScores(name, value.mean(0), null.mean(0), low[place], high[place], p[place], value - null)
        for place, (name, (value, null)) in enumerate(pairs.items())
    )
