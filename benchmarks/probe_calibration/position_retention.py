"""Cells of the probe position_retention: residual streams with no position, and with a known share of it."""

import functools

import torch

from benchmarks.probe_calibration._cell import DEAR_DRAWS, Cell, Outcome, Reading
from benchmarks.probe_calibration._synthetic import token_vectors, zipf_tokens
from ordinate.core.finding import Finding
from ordinate.ops.linear_readout import (
    held_out_accuracy,
    held_out_r2,
    nearest_mean_accuracy,
    ridge_r2,
    similarity_by_distance,
)
from ordinate.ops.stats.variance_components import position_share
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.formatting import mean_estimate, share_estimate
from ordinate.probing.probes.position_retention import PositionRetention
from ordinate.testing.analytic_model import AnalyticModel

PLACES, WIDTH = 63, 64
# texts on which the truth of a classifier is measured
FRESH = 512
# of the variance, in the planted cells
SHARE = 0.1
FOUND = ("yes", "weakly")


def vectors(seed: int, texts: int, share: float) -> torch.Tensor:
    """Vectors of tokens, in whose variance position has a known share."""
    x = token_vectors(zipf_tokens(texts, PLACES, seed), WIDTH) / expected_variance() ** 0.5
    return (1 - share) ** 0.5 * x + share**0.5 * position_means()


def readings(seed: int, texts: int, share: float) -> Outcome:
    """Estimates; the truth of a classifier or regression is what it has on fresh texts."""
    x, fresh = vectors(seed, texts, share), vectors(10**6 + seed, FRESH, share)
    targets = torch.arange(PLACES, dtype=torch.float64).expand(FRESH, -1)
    others = (x[0::2], targets[: len(x[0::2])], fresh, targets)
    read = {"variance explained by position": Reading.of(share_estimate("", position_share(x)), share)}
    distances = torch.from_numpy(similarity_by_distance(x, targets[0]))
    # white vectors: those of near positions are not more alike
    values = {"rank correlation of distances": (distances, 0.0)}
    right = nearest_mean_accuracy(x), float(held_out_accuracy(x[0::2], fresh).mean())
    values["positions recovered by nearest mean"] = right if share else (right[0], 1 / PLACES)
    for name, squares in (("R^2 of a linear probe", False), ("R^2 of a linear probe with squares", True)):
        truth = float(held_out_r2(*others, squares=squares).mean())
        values[name] = ridge_r2(x, targets[:texts], squares=squares), truth
    for name, (per_text, truth) in values.items():
        read[name] = Reading.of(mean_estimate("", per_text.numpy(), seed, ""), truth)
    nulls = {"positions recovered by nearest mean": 1 / PLACES}
    claims = {f"{name}, above chance": one.low > nulls.get(name, 0.0) for name, one in read.items()}
    if not share:
        return Outcome(read, false=claims)
    false = {name: claims.pop(name) for name in list(claims) if name.startswith("rank")}
    return Outcome(read, false=false, true=claims)


@functools.lru_cache(1)
def expected_variance() -> float:
    """Variance of a token's vector, over tokens of the Zipf distribution, summed over columns and divided by them."""
    table = token_vectors(torch.arange(2000)[None], WIDTH)[0]
    weights = 1 / torch.arange(1, len(table) + 1, dtype=torch.float64)
    weights = weights / weights.sum()
    mean = weights @ table
    return float((weights[:, None] * (table - mean).square()).sum()) / WIDTH


@functools.lru_cache(1)
def position_means() -> torch.Tensor:
    """White vectors of positions, whose variance with divisor places - 1 is 1 for each column on average."""
    means = torch.randn(PLACES, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    means = means - means.mean(0)
    return means / (means.square().sum() / (PLACES - 1) / WIDTH).sqrt()


class Averaging(AnalyticModel):
    """Without position encoding, with attention that is even over the tokens before (or none)."""

    def __init__(self, *, dead: bool) -> None:
        super().__init__("none", layers=2, width=32)
        for own in self.weights:
            own.query.zero_()
            if dead:
                own.out.zero_()


def finding(seed: int, *, dead: bool) -> Finding:
    """The finding of the whole probe on a model without position encoding."""
    ids = torch.randint(50, (24, 24), generator=torch.Generator().manual_seed(seed))
    return PositionRetention(doses=False).measure(Averaging(dead=dead), ProbeData(ids, None, "random"), seed)


def whole_probe(seed: int, *, dead: bool) -> Outcome:
    """Grade of the whole probe, and what it says of ablations."""
    found = finding(seed, dead=dead)
    graded = {"position survives": found.grade in FOUND}
    excess = [one for one in found.estimates if one.name.startswith("increase minus control")]
    read = {f"{one.name.split(' (')[0]}": Reading.of(one, 0.0) for one in excess} if dead else {}
    return Outcome(read, false=graded) if dead else Outcome(true=graded)


def cells() -> tuple[Cell, ...]:
    """All cells; numbers of texts from the fewest that are usual to the default."""
    blind = [
        Cell(f"no position: {texts} texts of {PLACES} Zipf tokens", functools.partial(readings, texts=texts, share=0))
        for texts in (16, 64)
    ]
    planted = Cell(
        f"position has {SHARE:g} of the variance: 64 texts of {PLACES} Zipf tokens",
        functools.partial(readings, texts=64, share=SHARE),
    )
    size = "24 texts of 24 random tokens"
    return (
        *(Cell(one.model, one.draw, DEAR_DRAWS) for one in (*blind, planted)),
        Cell(f"NoPE, dead attention: {size}", functools.partial(whole_probe, dead=True), DEAR_DRAWS),
        Cell(f"NoPE, even causal attention: {size}", functools.partial(whole_probe, dead=False), DEAR_DRAWS),
    )


CELLS = cells()
