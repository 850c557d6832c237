"""Attention scores of one text, split into what is due to positions and what is due to its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.finding import Table
from ordinate.core.shapes import Ids
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import MASKED_SCORE, AttentionRecord, Hooks, Inputs, ModelAdapter
from ordinate.probing.measures.samples import Sample
from ordinate.probing.measures.score_decomposition import level_rows
from ordinate.probing.measures.score_scale import score_scales

# independent groups of shuffled texts: queries and keys of two estimates of each term
GROUPS = 4
SHUFFLES = 32


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """The scores of a text before the softmax, centred in each row, which the softmax ignores.

        scores = position + content,   position = scale mean(q_i) . mean(k_j) + bias

    The means are over orders of the same tokens, so that position is what a score is whichever tokens stand there.

    Args:
        position: the part due to the two positions, with what is added to the products (ALiBi, T5); 0 where masked.
        content: the part due to the tokens that stand there; 0 where masked.
        position_share: share of the variance within rows that is due to position.
        content_share: share that is due to the tokens.
    """

    position: Float[ndarray, "layers h n n"]
    content: Float[ndarray, "layers h n n"]
    position_share: Float[ndarray, "layers h"]
    content_share: Float[ndarray, "layers h"]

    def table(self) -> Table:
        """Return a table with the shares of each head."""
        rows = [
            (f"{layer}.{head}", layer, head, float(self.position_share[layer, head]),
             float(self.content_share[layer, head]))
            for layer, head in np.ndindex(*self.position_share.shape)
        ]  # fmt: skip
        columns = ("name", "layer", "head", "due to position", "due to tokens")
        caption = "Shares of the variance of scores within rows; what they lack to 1 is twice their covariance."
        return Table(title="Scores by position and by tokens", columns=columns, rows=tuple(rows), caption=caption)


def score_split(
    model: ModelAdapter, ids: Ids, *, fixed: tuple[int, int] = (0, 0), shuffles: int = SHUFFLES, seed: int = 0
) -> ScoreSplit:
    """Split the attention scores of a text into position and content.

    The product of two estimates from other orders has no bias from their number, so that each share is unbiased:

        share = sum over pairs of  part_1 part_2 / sum over pairs of scores^2,   rows centred

    Args:
        model: the model.
        ids: one text (1, tokens).
        fixed: tokens at its beginning and end that stay in place: BOS, [CLS], [SEP].
        shuffles: random orders, a multiple of 4.
        seed: seed of the orders.

    Raises:
        ValueError: several texts, fewer than 4 tokens to move, or shuffles that are no multiple of 4.
        NotApplicable: the attention of the model is not observable, or is cross-attention.
    """
    model.info.need_one_text("position and content of scores")
    need(len(ids) == 1, "scores are split of one text", f"got {len(ids)}", "give one")
    front, back = fixed
    movable = torch.arange(front, ids.shape[1] - back)
    need(len(movable) >= 4, "a text to shuffle needs 4 tokens", f"got {len(movable)}", "give a longer text")
    even = shuffles >= GROUPS and shuffles % GROUPS == 0
    need(even, f"shuffles must be a multiple of {GROUPS}", f"got {shuffles}", "give 32")
    generator = torch.Generator().manual_seed(seed)
    moved = ids.repeat(shuffles, 1)
    for row in moved:
        row[movable] = row[movable[torch.randperm(len(movable), generator=generator)]]
    means, scales = _GroupMeans(), score_scales(model, Sample(ids, None, front, None))
    model.forward(Inputs(moved), means)
    split = _Split(means, scales)
    model.forward(Inputs(ids), split)
    found = (split.position, split.content, split.position_share, split.content_share)
    return ScoreSplit(*(np.stack(layers) for layers in found))


class _GroupMeans(Hooks):
    """Mean query and key at each position, in each group of texts."""

    skip_head = True

    def __init__(self) -> None:
        self.q: list[Tensor] = []
        self.k: list[Tensor] = []

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        for found, x in ((self.q, seen.q), (self.k, seen.k)):
            found.append(x.double().unflatten(0, (GROUPS, -1)).mean(1))


class _Split(Hooks):
    """The terms of the scores of one text.

    Args:
        means: mean queries and keys.
        scales: the scale of the scores of each layer.
    """

    skip_head = True

    def __init__(self, means: _GroupMeans, scales: Sequence[float]) -> None:
        self.means, self.scales = means, scales
        self.position: list[ndarray] = []
        self.content: list[ndarray] = []
        self.position_share: list[ndarray] = []
        self.content_share: list[ndarray] = []

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        heads, scale = seen.q.shape[1], self.scales[layer]
        q, k = seen.q[0].double(), repeat_for_heads(seen.k[0].double(), heads)
        scores = seen.scores[0].double()
        visible = scores > MASKED_SCORE
        added = torch.where(visible, scores - scale * (q @ k.mT), 0.0)
        places_q = self.means.q[layer]
        places_k = repeat_for_heads(self.means.k[layer].transpose(0, 1), heads).transpose(0, 1)

        def of_position(asked: Tensor, held: Tensor) -> Tensor:
            return level_rows(scale * (asked @ held.mT) + added, visible)

        whole = level_rows(scores, visible)
        # queries and keys of an estimate come from other orders, and those of the two estimates too
        first, second = (of_position(places_q[turn], places_k[turn + 1]) for turn in (0, 2))
        size = whole.square().sum((-2, -1)).clamp(min=1e-300)
        self.position_share.append(((first * second).sum((-2, -1)) / size).cpu().numpy())
        self.content_share.append((((whole - first) * (whole - second)).sum((-2, -1)) / size).cpu().numpy())
        position = of_position(places_q.mean(0), places_k.mean(0))
        self.position.append(position.float().cpu().numpy())
        self.content.append((whole - position).float().cpu().numpy())
