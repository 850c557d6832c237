"""Zuo et al. 2025: without positional embeddings, position is in the similarity of nearby tokens."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.ops.linear_readout import ridge_r2
from ordinate.replications.estimates import over_seeds
from ordinate.replications.random_models import attention_outputs, random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TOKENS, TEXTS, WIDTH, SEEDS = 128, 32, 256, 8
# first place with neighbours on one side
FIRST = 8
NEIGHBOURS = (1, 2, 4)


class Zuo(Replication):
    """Similarity of nearby causal averages: the later, the more alike, which tells a probe the place.

        cos(mean of v_1 .. v_i, mean of v_1 .. v_j) -> sqrt(i / j)    for i < j and independent values

    Source: Zuo et al. 2025, https://arxiv.org/abs/2501.00073; the competing account is the variance, Chi et al. 2023,
    https://arxiv.org/abs/2305.13571.
    """

    paper = Paper(
        authors="Zuo et al.", year=2025, arxiv="2501.00073",
        title="Position Information Emerges in Causal Transformers Without Positional Encodings via Similarity of "
        "Nearby Embeddings",
    )  # fmt: skip
    order = 19
    claims = (
        Claim(
            name="similarity of averages",
            text="Causal averages of nearby places are similar, the more the later they are.",
            tested="number",
            quantity="mean difference of the cosine of places i < j and sqrt(i / j), independent normal values",
            side="equal",
            expected=0.0,
            size=0.02,
            null="independent vectors in place of averages",
        ),
        Claim(
            name="beyond variance",
            text="Similarity of nearby tokens tells more of the place than variance alone.",
            tested="sign",
            quantity=f"increase in R^2 of the place when similarity is added to variance, last layer of {SEEDS} "
            "decoders with random weights",
            side="above",
            size=0.05,
            null="the same decoders without the causal mask",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        steps = (torch.arange(TOKENS) / TOKENS).double().expand(TEXTS, -1)
        noise = torch.randn(TEXTS, TOKENS, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (
            Control(name="R^2 of a feature that is the place", expected=1.0, got=_r2(steps[..., None]),
                    tolerance=0.01),
            Control(name="R^2 of a feature that is noise", expected=0.0, got=_r2(noise), tolerance=0.05),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        gaps = np.array([_gaps(subject.seed + turn) for turn in range(SEEDS)])
        added = np.array([_added(subject.seed + turn) for turn in range(SEEDS)])
        return {
            "similarity of averages": over_seeds("difference", gaps[:, 0], gaps[:, 1], subject.seed),
            "beyond variance": over_seeds("increase in R^2", added[:, 0], added[:, 1], subject.seed),
        }


def similarities(x: Float[Tensor, "texts places width"], lag: int) -> Float[Tensor, "texts later"]:
    """Cosine of each vector and the one `lag` places before, from place `FIRST`."""
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    return (unit[:, FIRST:] * unit[:, FIRST - lag : x.shape[1] - lag]).sum(-1)


def _r2(features: Float[Tensor, "texts places columns"]) -> float:
    """R^2 of the place, on texts that the regression was not fitted to."""
    places = torch.arange(features.shape[1]).double().expand(len(features), -1)
    return float(ridge_r2(features, places, squares=True).mean())


def _gaps(seed: int) -> tuple[float, float]:
    """Mean difference of cosines and sqrt(i / j), of causal averages and of independent vectors."""
    values = torch.randn(TEXTS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    places = torch.arange(1, TOKENS + 1)
    means, found = values.cumsum(1) / places[:, None], []
    for x in (means, values):
        parts = [similarities(x, lag) - ((places[FIRST:] - lag) / places[FIRST:]).sqrt() for lag in NEIGHBOURS]
        found.append(float(torch.stack(parts).mean()))
    return found[0], found[1]


def _added(seed: int) -> tuple[float, float]:
    """Increase in R^2 by similarity beside variance, with the causal mask and without."""
    model, ids, found = random_decoder(seed), random_texts(seed, TEXTS, TOKENS), []
    for causal in (True, False):
        x = attention_outputs(model, ids, causal=causal).outputs[-1]
        spread = x[:, FIRST:].var(-1).log()
        near = [similarities(x, lag) for lag in NEIGHBOURS]
        found.append(_r2(torch.stack([spread, *near], -1)) - _r2(spread[..., None]))
    return found[0], found[1]
