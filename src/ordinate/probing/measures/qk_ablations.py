"""Ablations of queries, keys and scores: the arms of the roles probe."""

from ordinate.probing._adapter import Hooks, ModelAdapter, NotApplicable
from ordinate.probing.measures.alternative_normalisers import SigmoidAttention, SinkhornAttention
from ordinate.probing.measures.low_rank_heads import low_rank_intervention, qk_of_tokens, qk_weights
from ordinate.probing.measures.measured import Measured, attempt, missing_parts
from ordinate.probing.measures.qk_interventions import RandomlyRotatedQueries, SwappedQK, SymmetrisedScores
from ordinate.probing.measures.qk_symmetry import QKSymmetry
from ordinate.probing.measures.samples import Sample
from ordinate.probing.measures.score_scale import RemovedScale, score_scales

# head width divided by these: the ranks that are kept
RANK_DIVISORS = (8, 4, 2)


def qk_ablations(
    subject: ModelAdapter, chosen: Sample, weights: QKSymmetry | None, seed: int
) -> Measured[tuple[dict[str, Hooks], list[float] | None]]:
    """The ablations by name, and the scale of the scores of each layer (None if it is 1 or cannot be measured).

    Args:
        subject: the model.
        chosen: the sample that the scale and low-rank projections are estimated from.
        weights: W_q and W_k of each layer; None: unknown.
        seed: seed of the random controls.
    """
    arms: dict[str, Hooks] = {
        "queries and keys swapped": SwappedQK(queries=True, keys=True),
        "queries replaced by keys": SwappedQK(queries=True, keys=False),
        "keys replaced by queries": SwappedQK(queries=False, keys=True),
        "queries randomly rotated": RandomlyRotatedQueries(seed),
    }
    scales = attempt("scale", lambda: score_scales(subject, chosen))
    if scales.value is not None:
        arms["scores symmetrised"] = SymmetrisedScores(scales.value, 1)
        arms["scores antisymmetrised"] = SymmetrisedScores(scales.value, -1)
        if max(abs(one - 1) for one in scales.value) < 1e-3:
            scales = Measured(None, {"scale": "the scores are not scaled"})
    if scales.value is not None:
        arms["scale removed"] = RemovedScale(scales.value, after_softmax=False)
        arms["scale after the softmax"] = RemovedScale(scales.value, after_softmax=True)
    arms["sigmoid instead of softmax"] = SigmoidAttention()
    name = "Sinkhorn instead of softmax"
    sinkhorn = attempt(name, lambda: SinkhornAttention(subject.info))
    if sinkhorn.value is not None:
        arms[name] = sinkhorn.value
    low_rank = _low_rank(subject, chosen, weights, seed)
    return Measured((arms | low_rank.value, scales.value), missing_parts(scales, sinkhorn, low_rank))


def ablation_ranks(weights: QKSymmetry) -> list[int]:
    """The ranks that low-rank ablations keep, in ascending order."""
    each = weights.projections[0].query.shape[-1]
    return sorted({max(1, each // part) for part in RANK_DIVISORS})


def _low_rank(
    subject: ModelAdapter, chosen: Sample, weights: QKSymmetry | None, seed: int
) -> Measured[dict[str, Hooks]]:
    found, missing = dict[str, Hooks](), dict[str, str]()
    if weights is None:
        return Measured(found)
    try:
        layers, tokens = qk_weights(weights), qk_of_tokens(subject, chosen, weights)
        for rank in ablation_ranks(weights):
            found[f"rank {rank}"] = low_rank_intervention(layers, weights, rank)
            found[f"rank {rank} from scores on real tokens"] = low_rank_intervention(tokens, weights, rank)
            found[f"rank {rank}, random directions"] = low_rank_intervention(layers, weights, rank, seed)
    except NotApplicable as reason:
        missing["low-rank W_q W_k^T"] = str(reason)
    return Measured(found, missing)
