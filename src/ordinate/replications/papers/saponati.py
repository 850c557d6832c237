"""Saponati et al. 2025: query-key matrices of encoders are symmetric; grouped queries paired rightly."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.ops.heads import repeat_for_heads
from ordinate.ops.stats.bootstrap import percentiles
from ordinate.ops.symmetry import summed_symmetry, symmetry
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.qk_symmetry import measure_qk_symmetry
from ordinate.probing.measures.samples import ForwardBudget, observation_sample
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

# the shape of grouped heads in Llama-3-8B: heads, key heads; the width is smaller
HEADS, KEY_HEADS, WIDTH, HEAD_WIDTH, DRAWS = 32, 8, 512, 16, 20

Heads = Float[Tensor, "h width d"]


class Planted(NamedTuple):
    """Projections of one layer whose symmetry is known.

    Args:
        query: W_q of each query head.
        key: W_k of each key head, shared by a group of consecutive query heads.
    """

    query: Heads
    key: Heads


class Saponati(Replication):
    """Symmetry of W_q W_k^T, where groups of query heads share a key head.

        M = sum over heads of W_q W_k^T,    s = tr(M M) / |M|^2 = 2 |symmetric part|^2 / |M|^2 - 1

    The published scores of grouped-query models repeat the key matrices as a whole, (0, 1, .., 0, 1, ..), where the
    models repeat each key head for a group of consecutive query heads, (0, 0, .., 1, 1, ..): most heads are paired
    with a key head that they never meet.

    Source: Saponati et al. 2025, https://arxiv.org/abs/2502.10927, and its repository.
    """

    paper = Paper(
        authors="Saponati et al.", year=2025, arxiv="2502.10927",
        title="The underlying structures of self-attention: symmetry, directionality, and emergent dynamics in "
        "Transformer training",
    )  # fmt: skip
    order = 9
    claims = (
        Claim(
            name="grouped queries",
            text="The score of a grouped-query model, as the paper's repository computes it, is the symmetry of its "
            "query-key matrices.",
            tested="identity",
            quantity="published score of a layer with 32 heads and 8 key heads whose query-key matrices are exactly "
            "symmetric",
            side="equal",
            expected=1.0,
            size=0.05,
            null="random projections, paired rightly",
        ),
        Claim(
            name="encoder",
            text="Query-key matrices of encoders are symmetric.",
            tested="sign",
            quantity="symmetry of the median head, with the weight of the preceding norm, paired rightly",
            side="above",
            size=0.1,
            null="random heads with the same singular values",
            printed="0.51 for BERT-base, 0.49 for RoBERTa-base, of the sum over heads",
            needs="model",
        ),
        Claim(
            name="decoder",
            text="Query-key matrices of decoders are not symmetric.",
            tested="number",
            quantity="symmetry of the median head, with the weight of the preceding norm, paired rightly",
            side="equal",
            expected=0.0,
            size=0.2,
            null="1: symmetric matrices",
            printed="0.15 for GPT-2, 0.12 for Llama-2-7B, 0.00 for Llama-3-8B, of the sum over heads",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        made = {"symmetric": 1.0, "antisymmetric": -1.0, "independent": 0.0}
        plants = {name: plant(sign, KEY_HEADS, seed) for name, sign in made.items()}
        found = [
            Control(name=f"{name} heads in groups, paired rightly", expected=made[name],
                    got=float(symmetry(*own).median()), tolerance=0.02)
            for name, own in plants.items()
        ]  # fmt: skip
        # with one key head for each query head both pairings are the same
        return (*found, Control(name="symmetric heads without groups, in the published pairing", expected=1.0,
                                got=published_symmetry(*plant(1.0, HEADS, seed)), tolerance=1e-9))  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        scores = [published_symmetry(*plant(1.0, KEY_HEADS, subject.seed + turn)) for turn in range(DRAWS)]
        chance = [summed_symmetry(*plant(0.0, KEY_HEADS, subject.seed + turn)) for turn in range(DRAWS)]
        found = {"grouped queries": _range("published score", scores, chance)}
        model = subject.model
        if model is not None and subject.texts is not None and model.info.kind in ("encoder", "decoder"):
            found |= _of_model(model, subject.texts, subject.seed)
        return found


def plant(sign: float, key_heads: int, seed: int) -> Planted:
    """Make projections with known symmetry of each W_q W_k^T: `sign` 1 symmetric, -1 antisymmetric, 0 independent.

    Antisymmetric: W_q = W_k J with J^T = -J, J orthogonal.
    """
    generator = torch.Generator().manual_seed(seed)
    key = torch.randn(key_heads, WIDTH, HEAD_WIDTH, generator=generator, dtype=torch.float64)
    own = repeat_for_heads(key, HEADS)
    if sign == 0:
        return Planted(torch.randn(own.shape, generator=generator, dtype=torch.float64), key)
    half = torch.eye(HEAD_WIDTH // 2, dtype=torch.float64)
    turn = torch.kron(torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64), half)
    return Planted(own if sign > 0 else own @ turn, key)


def published_symmetry(query: Heads, key: Float[Tensor, "g width d"]) -> float:
    """Symmetry of the sum over heads as the authors' repository pairs them: query head h with key head h mod g.

    Its function returns |symmetric part|^2 / |M|^2; the table has twice that less 1, which is returned here.
    """
    tiled = key[torch.arange(len(query)) % len(key)]
    return summed_symmetry(query, tiled)


def _of_model(model: ModelAdapter, texts: ProbeData, seed: int) -> dict[str, Estimate]:
    """Symmetry of the median head, by the claim that it concerns; empty if the projections are unknown."""
    sample = observation_sample(model.info, texts, ForwardBudget(1))
    found = measure_qk_symmetry(model, sample, seed).value
    if found is None:
        return {}
    name, median = "symmetry of the median head", float(np.median(found.symmetry))
    if model.info.causal:
        return {"decoder": Estimate(name=name, value=median, null=1.0)}
    low, high = found.null_interval
    return {"encoder": Estimate(name=name, value=median, null=1 / model.info.width, null_low=low, null_high=high)}


def _range(name: str, values: Sequence[float], null: Sequence[float]) -> Estimate:
    """Mean of draws with the range of 95 % of them: each draw is a layer of its own."""
    (low, high), (null_low, null_high) = percentiles(np.array(values)), percentiles(np.array(null))
    return Estimate(name=name, value=float(np.mean(values)), low=float(low), high=float(high),
                    null=float(np.mean(null)), null_low=float(null_low), null_high=float(null_high))  # fmt: skip
