"""Cells of the probe position_content_subspaces: known shares of position, of the scores, and no position at all."""

import functools
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from ordinate.core.finding import Estimate
from ordinate.probing._adapter import AttentionRecord
from ordinate.probing.measures.formatting import group_estimate, share_estimate
from ordinate.probing.measures.score_decomposition import TERMS, ScoreTerms
from ordinate.probing.measures.subspace_overlap import position_share_in_token_subspace
from ordinate.probing.probes.position_content_subspaces import PositionContentSubspaces
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

TEXTS, PLACES, WIDTH, TOKENS, ENERGY = 32, 16, 64, 24, 0.99
# norm of the position means, beside tokens of norm 1
SIZE = 0.3


def drawn(seed: int, *shape: int) -> Float[Tensor, "*shape"]:
    """Independent normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@functools.lru_cache(1)
def basis() -> Float[Tensor, "width width"]:
    """Directions, the first of which are those of tokens."""
    return torch.linalg.qr(drawn(99, WIDTH, WIDTH)).Q.T


def tokens(seed: int) -> Float[Tensor, "texts places width"]:
    """Vectors of tokens, in directions of their own."""
    return drawn(seed, TEXTS, PLACES, TOKENS) @ basis()[:TOKENS] / TOKENS**0.5


def known_share(share: float) -> Callable[[int], Outcome]:
    """A known share of the position variance lies in the directions of tokens, the rest beside them."""
    inside, beside = (drawn(turn, PLACES, 4) @ basis()[start : start + 4] for turn, start in ((1, 0), (2, TOKENS)))
    inside, beside = (part - part.mean(0) for part in (inside, beside))
    whole = share**0.5 * inside / inside.norm() + (1 - share) ** 0.5 * beside / beside.norm()
    places = SIZE * PLACES**0.5 * whole

    def draw(seed: int) -> Outcome:
        found = position_share_in_token_subspace(tokens(seed) + places, ENERGY, seed).share
        if found is None:
            return Outcome(true={"position is detected": False})
        read = {"position variance in the token subspace": Reading.of(share_estimate("", found), share)}
        return Outcome(read, true={"position is detected": True})

    return draw


def random_directions(seed: int) -> Outcome:
    """Position in random directions: neither more nor less among those of tokens than by chance."""
    found = position_share_in_token_subspace(
        tokens(seed) + SIZE * drawn(10**6 + seed, PLACES, WIDTH) / WIDTH**0.5, ENERGY, seed
    )
    none = position_share_in_token_subspace(tokens(seed), ENERGY, seed)
    if found.share is None:
        return Outcome(true={"position is detected": False})
    return Outcome(
        false={
            "more in the directions of tokens than by chance": found.share.low > found.high,
            "less in the directions of tokens than by chance": found.share.high < found.low,
            "position is detected where there is none": none.share is not None,
        },
        true={"position is detected": True},
    )


def scores(sizes: tuple[float, float, float, float]) -> Callable[[int], Outcome]:
    """A head whose queries and keys are sums of position and token parts, with known sizes.

    Args:
        sizes: standard deviation of the position part of queries and of keys, and of the token parts.
    """
    length, width, heads = 16, 24, 1
    means = [size * (own - own.mean(0)) for size, own in zip(sizes[:2], drawn(5, 2, length, width), strict=True)]
    facts = AnalyticModel("none", causal=False, layers=1, heads=heads).info

    def draw(seed: int) -> Outcome:
        noise = drawn(seed, 2, 30, length, width)
        q, k = ((mean + size * own)[:, None] for mean, size, own in zip(means, sizes[2:], noise, strict=True))
        terms = ScoreTerms(facts, [0.5])
        whole = 0.5 * q @ k.mT
        terms.attention(0, AttentionRecord(q, k, q, whole, whole.softmax(-1), q))
        shares = terms.found[0][0][:, 0].numpy()
        return Outcome({
            name: Reading.of(group_estimate("", shares[:, place], "")) for place, name in enumerate(TERMS)
        })  # fmt: skip

    return draw


def without_position(metric: bool) -> Callable[[int], Outcome]:
    """The whole probe, on an encoder without positions.

    Args:
        metric: whether its loss is compared; otherwise the change of its output.
    """

    def draw(seed: int) -> Outcome:
        subject = AnalyticModel("none", causal=False, layers=1, head=metric, seed=seed)
        finding = PositionContentSubspaces().measure(subject, random_sequences(30, 16, seed=seed), seed)
        found: dict[str, Estimate] = {one.name: one for one in finding.estimates}
        read = {name: Reading.of(found[f"share of score variance: {name}"], 0.0) for name in TERMS[1:]}
        excess = found["increase minus control, all terms with position ablated"]
        read["all terms with position ablated, minus control"] = Reading.of(excess, 0.0)
        sure = {f"{name} above 0": one.low > 0 for name, one in read.items()}
        return Outcome(read, false={"the answer is not no": finding.grade != "no"} | sure)

    return draw


SHOWN = f"{TEXTS} texts of {PLACES} places"
CELLS = (
    *(
        Cell(
            f"{share:.0%} of the position variance in the directions of tokens: {SHOWN}",
            known_share(share),
        )
        for share in (0.1, 0.5, 0.9)
    ),
    Cell(f"position in random directions: {SHOWN}", random_directions),
    Cell("scores of four equal terms: 30 texts of 16 tokens", scores((1, 1, 1, 1))),
    Cell("scores of tokens alone: 30 texts of 16 tokens", scores((0, 0, 1, 1))),
    Cell("an encoder without positions, loss: 30 texts of 16 tokens", without_position(True)),
    Cell("an encoder without positions, output: 30 texts of 16 tokens", without_position(False)),
)
