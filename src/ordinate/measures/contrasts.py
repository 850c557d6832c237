"""What is done to queries, keys and scores to see what they are for."""

from ordinate.measures.meeting import Exchanged, Mixed, Symmetric
from ordinate.measures.narrowing import narrowed, of_tokens, of_weights
from ordinate.measures.normalising import Sigmoids, Sinkhorns
from ordinate.measures.presenting import Sample
from ordinate.measures.scaling import Scaled, scale_of
from ordinate.measures.weighing import Weighed
from ordinate.subject import Subject, Unfit, Watch

# shares of the directions of a head that are kept, from few to many
PARTS = (8, 4, 2)


def contrasts(
    subject: Subject, chosen: Sample, weights: Weighed | None, seed: int, reasons: dict[str, str]
) -> tuple[dict[str, Watch], float | None]:
    """What is changed, by name, and the scale of the scores; None: there is none.

    Args:
        subject: the model.
        chosen: what it reads; it shows the scale.
        weights: the matrices; None: they are not known.
        seed: of controls.
        reasons: is told why something cannot be done.
    """
    arms: dict[str, Watch] = {
        "queries and keys exchanged": Exchanged(queries=True, keys=True),
        "keys in the place of queries": Exchanged(queries=True, keys=False),
        "queries in the place of keys": Exchanged(queries=False, keys=True),
        "queries turned at random": Mixed(seed),
    }
    scale = _scale(subject, chosen, arms, reasons)
    if scale is not None:
        arms["scale left out"] = Scaled(scale, outside=False)
        arms["scale outside"] = Scaled(scale, outside=True)
    arms["weights by a sigmoid"] = Sigmoids()
    try:
        arms["weights by Sinkhorn's divisions"] = Sinkhorns(subject.facts)
    except Unfit as reason:
        reasons["weights by Sinkhorn's divisions"] = str(reason)
    return arms | _fewer(subject, chosen, weights, seed, reasons), scale


def _scale(subject: Subject, chosen: Sample, arms: dict[str, Watch], reasons: dict[str, str]) -> float | None:
    """The scale; what is done to a part of the products goes to the arms."""
    try:
        scale = scale_of(subject, chosen)
    except Unfit as reason:
        reasons["scale"] = str(reason)
        return None
    arms["symmetric part of scores alone"] = Symmetric(scale, 1)
    arms["antisymmetric part of scores alone"] = Symmetric(scale, -1)
    if abs(scale - 1) < 1e-3:
        reasons["scale"] = "its products are not scaled"
        return None
    return scale


def ranks_of(weights: Weighed) -> list[int]:
    """How many directions of a head are kept, from few to many."""
    each = weights.layers[0].query.shape[-1]
    return sorted({max(1, each // part) for part in PARTS})


def _fewer(
    subject: Subject, chosen: Sample, weights: Weighed | None, seed: int, reasons: dict[str, str]
) -> dict[str, Watch]:
    found: dict[str, Watch] = {}
    if weights is None:
        return found
    try:
        layers, tokens = of_weights(weights), of_tokens(subject, chosen, weights)
        for rank in ranks_of(weights):
            found[f"rank {rank}"] = narrowed(layers, weights, rank)
            found[f"rank {rank} of scores on tokens"] = narrowed(tokens, weights, rank)
            found[f"rank {rank} at random"] = narrowed(layers, weights, rank, seed)
    except Unfit as reason:
        reasons["fewer directions of a head"] = str(reason)
    return found
