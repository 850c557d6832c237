"""Position similarity: distances between position embeddings, and the effect of swapping positions."""

import time

import numpy as np
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Finding, Grade, HeatmapGrid, Line
from ordinate.core.progress import OnProgress, fraction, ignore, subrange
from ordinate.ops.stats.permutation_tests import mantel_test
from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    describe_effects,
    format_estimate,
    heatmap_of,
    mean_estimate,
    mean_line,
    sample_caveats,
)
from ordinate.probing.measures.measured import Measured, attempt, missing_parts
from ordinate.probing.measures.perturbation_loss import Metric, metric_for
from ordinate.probing.measures.position_distances import (
    attention_divergence,
    closest_pair,
    distances_by_offset,
    nearest_offsets,
    null_adjacent_share,
    null_closest_pair,
    pairwise_distances,
    position_scores,
)
from ordinate.probing.measures.position_swaps import SwapEffects, swap_passes, swap_positions
from ordinate.probing.measures.samples import ForwardBudget, Sample, intervention_sample
from ordinate.probing.measures.subspace_ablation import excess_over_controls

MAX_POSITIONS = 256
CLOSEST = "smallest / median distance of position embeddings"
ADJACENT, APART = "increase, adjacent positions swapped", "increase, positions swapped at an offset of"
# two embeddings closer than this share of the median distance are the same for any use
SAME = 0.01
METHOD = (
    "Pairwise Euclidean distances between position embeddings ({length} positions). Similarity of attention "
    "patterns: one token repeated at all positions, so that the first layer's scores depend on position alone; "
    "Jensen-Shannon divergence between the attention patterns of each two queries, averaged over heads; its "
    "correlation with distance by a Mantel test with 999 permutations. Effect of swaps: on {texts} {noun} of "
    "{tokens} tokens the position ids of pairs at a given offset are swapped, and the {what} is compared with that "
    "of the unchanged {noun}; each of three controls displaces the embeddings at the same positions equally far, in "
    "random directions that all {noun} share, and intervals of differences from them count the differences between "
    "controls. Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "Nearest neighbours: the same rows in random order. Closest pair: tables of the same shape with normal random "
    "numbers. Mantel: permuted position labels. Swaps: the control, which moves tokens equally far but not to "
    "another position."
)


class PositionSimilarity(Probe):
    """Similarity of positions, in embeddings and attention patterns, and the effect of swapping them."""

    title = "Are some positions too close to each other?"

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts = time.perf_counter(), model.info
        if data.ids is None:
            raise NotApplicable("this probe needs texts; images have a grid of patches")
        length = min(MAX_POSITIONS, facts.max_length or MAX_POSITIONS, data.ids.shape[1])
        embedded = attempt("distances between position embeddings", lambda: _table(model, length), (None, None))
        table, pairwise = embedded.value
        passes = swap_passes(data.ids.shape[1] if table is None else length, controls=table is not None)
        chosen = intervention_sample(facts, data, ForwardBudget(passes))
        on_progress(fraction(0.1))
        patterns = _pattern_divergences(model, chosen, min(length, 128))
        divergences = patterns.value
        on_progress(fraction(0.3))
        scale, part = metric_for(model, chosen, seed), subrange(on_progress, 0.3, 1.0)
        swapped = attempt("effect of swapped positions", lambda: swap_positions(scale, table, seed, part))
        harm, missing = swapped.value, missing_parts(embedded, patterns, swapped)
        if pairwise is None and divergences is None and harm is None:
            raise NotApplicable("; ".join(missing.values()))
        estimates = _embedding_estimates(model, table, pairwise, chosen, seed)
        estimates += _pattern_estimates(pairwise, divergences, seed)
        estimates += _swap_estimates(harm, scale, seed)
        grade, effect = _grade(estimates)
        sizes = {"length": length, "texts": chosen.count, "tokens": chosen.length, "noun": chosen.noun}
        return Finding(
            question="position_similarity",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer({one.name: one for one in estimates}, facts),
            estimates=tuple(estimates),
            charts=(*_distance_chart(pairwise), *_swap_chart(harm, scale, seed)),
            pictures=tuple(_pictures(pairwise, divergences)),
            method=METHOD.format(what=scale.name, **sizes),
            null=NULL,
            caveats=sample_caveats([chosen], missing),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _table(subject: ModelAdapter, length: int) -> tuple[Tensor, ndarray]:
    table = subject.position_table(length).detach().cpu().double()
    pairwise = pairwise_distances(table)
    if not pairwise.any():
        raise NotApplicable("the position embeddings are the same at all positions")
    return table, pairwise


def _pattern_divergences(subject: ModelAdapter, chosen: Sample, length: int) -> Measured[ndarray | None]:
    ids = chosen.inputs(slice(0, 4)).ids
    if ids is None:
        return Measured(None)
    last, name = ids[:, -1], "attention patterns by position"
    return attempt(name, lambda: attention_divergence(position_scores(subject, last, length)))


def _embedding_estimates(
    subject: ModelAdapter, table: Tensor | None, pairwise: ndarray | None, chosen: Sample, seed: int
) -> list[Estimate]:
    if table is None or pairwise is None:
        return []
    share, (smallest, offset) = float((nearest_offsets(pairwise) == 1).mean()), closest_pair(pairwise)
    mean, low, high = null_adjacent_share(pairwise, seed)
    expected_ratio, expected_low, expected_high = null_closest_pair((len(table), table.shape[1]), seed)
    given = chosen.inputs(slice(0, chosen.count)).ids
    tokens = subject.token_table()[given.unique() if given is not None else slice(None)].cpu().double()
    level = [(x - x.mean(1, keepdim=True)).norm(dim=1).median() for x in (table, tokens)]
    size = float(table.norm(dim=1).median() / tokens.norm(dim=1).median())
    return [
        Estimate(name=CLOSEST, value=smallest, null=expected_ratio,
                 null_low=expected_low, null_high=expected_high),
        Estimate(name="offset of the closest pair", value=float(offset), unit="tokens"),
        Estimate(name="positions whose nearest neighbour is adjacent", value=share, null=mean, null_low=low,
                 null_high=high, unit="share"),
        Estimate(name="norm of position embeddings / token embeddings", value=size, unit="ratio of medians"),
        Estimate(name="the same after centring", value=float(level[0] / level[1]),
                 unit="ratio of medians"),
    ]  # fmt: skip


def _pattern_estimates(pairwise: ndarray | None, divergences: ndarray | None, seed: int) -> list[Estimate]:
    if divergences is None:
        return []
    count = len(divergences)
    offsets = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    near = float(np.diagonal(divergences, 1).mean())
    found = [
        Estimate(name="JS divergence of attention patterns, adjacent positions", value=near, null=0.0, unit="bits")
    ]
    flat = divergences.max() < 1e-9
    for name, other in (("embedding distance", pairwise), ("offset", offsets)):
        if other is not None and not flat:
            test = mantel_test(other[:count, :count], divergences, seed)
            ends = {"null_low": test.low, "null_high": test.high}
            name = f"correlation of JS divergence with {name}, p {test.p:.3f}"
            found.append(Estimate(name=name, value=test.value, null=0.0, **ends))
    return found


def _swap_estimates(harm: SwapEffects | None, scale: Metric, seed: int) -> list[Estimate]:
    if harm is None:
        return []
    first, last = harm.swap_effects[:, 0], harm.swap_effects[:, -1]
    unit, far = scale.unit, harm.offsets[-1]
    found = [mean_estimate(ADJACENT, first, seed, unit),
             mean_estimate(f"{APART} {far}", last, seed, unit)]  # fmt: skip
    controls = harm.control_effects
    if controls is not None:
        found.append(excess_over_controls(f"{ADJACENT}, minus control", first, list(controls[..., 0]), unit))
    if controls is not None and len(harm.displacements) > 1:
        steps = np.array(harm.displacements) - np.mean(harm.displacements)
        weights = steps / max(float((steps**2).sum()), 1e-30)
        name = "increase per unit of embedding distance, minus control"
        found.append(excess_over_controls(name, harm.swap_effects @ weights, list(controls @ weights), unit))
    return found


def _distance_chart(pairwise: ndarray | None) -> list[Chart]:
    if pairwise is None:
        return []
    middle, low, high = (tuple(values) for values in distances_by_offset(pairwise))
    across = tuple(float(offset) for offset in range(1, len(pairwise)))
    chance = float(pairwise[np.triu_indices(len(pairwise), 1)].mean())
    lines = (
        Line(name="positions", x=across, y=middle, low=low, high=high),
        Line(name="rows in random order", x=(across[0], across[-1]), y=(chance, chance), null=True),
    )
    caption = "Mean over pairs at each offset; band: central 95 % of the pairs."
    return [
        Chart(
            title="Distance of position embeddings by offset",
            x="offset [tokens]",
            y="distance",
            lines=lines,
            caption=caption,
        )
    ]


def _swap_chart(harm: SwapEffects | None, scale: Metric, seed: int) -> list[Chart]:
    if harm is None:
        return []
    lines = [mean_line("positions swapped", harm.offsets, harm.swap_effects, seed)]
    if harm.control_effects is not None:
        lines.append(
            mean_line(
                "equal displacement in random directions",
                harm.offsets,
                harm.control_effects.mean(0),
                seed,
                null=True,
            )
        )
    words = {"title": "Effect of swapping positions", "x": "offset [tokens]", "y": f"increase [{scale.unit}]"}
    return [
        Chart(**words, lines=tuple(lines), across="log", caption="Several pairs of each text are swapped at once.")
    ]


def _pictures(pairwise: ndarray | None, divergences: ndarray | None) -> list[HeatmapGrid]:
    found = [
        ("Distances between position embeddings", pairwise),
        ("JS divergence between attention patterns of positions [bits]", divergences),
    ]
    return [
        HeatmapGrid(title=title, x="position", y="position", panels=(heatmap_of("all positions", matrix),))
        for title, matrix in found
        if matrix is not None
    ]


def _collide(found: dict[str, Estimate]) -> bool:
    """Whether two embeddings are practically equal, or two that are not adjacent closer than random ones are."""
    closest = found.get(CLOSEST)
    if closest is None:
        return False
    distant = found["offset of the closest pair"].value > 1 and closest.value < (closest.null_low or 0.0)
    return closest.value < SAME or distant


def _grade(estimates: list[Estimate]) -> tuple[Grade, Estimate]:
    """Whether positions are too close: embeddings that collide, or adjacent positions that the model cannot tell
    apart though it can tell distant ones; weakly if a swap does less than an equal displacement in random directions.
    """
    found = {one.name: one for one in estimates}
    if _collide(found):
        return "yes", found[CLOSEST]
    near, far = found.get(ADJACENT), next((one for one in estimates if one.name.startswith(APART)), None)
    if near is None or far is None or near.low is None or far.low is None:
        return "cannot be told", estimates[0]
    if near.low > 0:
        beyond = found.get(f"{ADJACENT}, minus control")
        less = beyond is not None and beyond.high is not None and beyond.high < 0
        return ("weakly", beyond) if less and beyond is not None else ("no", near)
    # a model that notices no swap at all may have no positions to confuse
    return "yes" if far.low > 0 else "cannot be told", near


def _answer(found: dict[str, Estimate], facts: ModelInfo) -> str:
    sentences, nearest = [], found.get(CLOSEST)
    if nearest is not None:
        offset = found["offset of the closest pair"].value
        adjacent = found["positions whose nearest neighbour is adjacent"].value
        closer = nearest.value < (nearest.null_low or 0)
        kind = "closer than in a random table" if closer else "no closer than in a random table"
        same = " They are practically equal." if nearest.value < SAME else ""
        sentences.append(
            f"The closest pair of position embeddings is at offset {offset:.0f}, at {nearest.value:.2g} of the "
            f"median distance: {kind}; for {100 * adjacent:.0f} % of positions the nearest neighbour is adjacent."
            f"{same}"
        )
    else:
        sentences.append(f"No position embeddings are added to tokens: {facts.position_phrase}.")
    near = found.get("JS divergence of attention patterns, adjacent positions")
    if near is not None:
        sentences.append(f"Attention patterns of adjacent positions differ by {format_estimate(near)} in layer 1.")
    swapped, beyond = (found.get(f"{ADJACENT}{end}") for end in ("", ", minus control"))
    if swapped is not None and swapped.low is not None and swapped.high is not None:
        if swapped.low <= 0 <= swapped.high:
            sentences.append("Swapping adjacent positions has no measurable effect.")
        else:
            far = next(one for name, one in found.items() if name.startswith(APART))
            done = {
                "Swapping adjacent positions": swapped,
                f"at an offset of {far.name.removeprefix(APART).strip()}": far,
            }
            sentences.append(f"{describe_effects(done)}.")
    if beyond is not None and beyond.low is not None and beyond.high is not None:
        sure = "more" if beyond.low > 0 else "less" if beyond.high < 0 else "not measurably more or less"
        sentences.append(f"Swapping adjacent positions does {sure} than an equal displacement in random directions.")
    return " ".join(sentences)
