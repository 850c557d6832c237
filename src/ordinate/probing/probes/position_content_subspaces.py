"""Position and content subspaces of the residual stream, and the decomposition of attention scores into both."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Finding, Grade, HeatmapGrid, Line, Table
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.ops.stats.bootstrap import student_intervals
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures.formatting import (
    format_estimate,
    format_percent,
    format_value,
    group_estimate,
    heatmap_of,
    interval_line,
    mean_estimate,
    mean_line,
    sample_caveats,
    share_estimate,
    too_few_samples,
)
from ordinate.probing.measures.measured import Measured, attempt, missing_parts
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.position_codes import EmbeddingProperties
from ordinate.probing.measures.residual_stream import choose_positions, residual_at_positions
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    truncated,
)
from ordinate.probing.measures.score_decomposition import (
    GROUP_SIZE,
    TERMS,
    AblatedTerms,
    PositionMeans,
    position_means,
    score_variance_shares,
)
from ordinate.probing.measures.score_scale import score_scales
from ordinate.probing.measures.subspace_ablation import excess_over_controls
from ordinate.probing.measures.subspace_overlap import (
    Stream,
    SubspaceShare,
    embedding_overlap_and_properties,
    position_selectivity,
    position_share_in_token_subspace,
)

ENERGY, LENGTH, SHOWN, SIDE = 0.9, 96, 12, 32
POSITION_UNIT = "of the position variance"
TERM_NAMES = (*TERMS, "interactions")
# the terms with position, and how often ablating them is repeated with means of shuffled positions
POSITION_TERMS, CONTROLS = (1, 2, 3), 3
POSITION_EFFECT = "increase minus control, all terms with position ablated"
METHOD = (
    "{whole}. Subspaces: for tokens, the principal directions that hold {energy:.0%} of the variance between {noun} "
    "at the same position; for position, the mean of all {noun} but one at each position, multiplied with that one. "
    "Scores, of {few}: queries and keys are split into position means, estimated from other {noun}, and the rest; "
    "the four products and additive biases sum to the scores exactly. Shares: of the within-row variance of scores, "
    "cross-fitted in groups of five {noun}: each term times itself, estimated twice from different texts; "
    "interactions between terms are listed separately. Each term is ablated in all heads, and the {what} compared; "
    "then all terms with position, beside three controls with means of shuffled positions, whose differences the "
    "interval counts: ablating noise has an effect too. "
    "Projections: energy of the first layer's matrices in the position subspace, relative to its share of "
    "dimensions. Position embeddings: a position is separable if a hyperplane separates it from all others; ridge "
    "regression, fitted to one half of the positions. Intervals: 95 %, bootstrap over {noun}; of shares of score "
    "variance Student's, over groups of five."
)
NULL = (
    "Position in random directions: the token subspace holds its share of dimensions; the interval is of randomly "
    "rotated position directions. A model without position: all score variance is token-token. A random table: R^2 "
    "of 0 or below."
)


@dataclass(frozen=True)
class SubspaceResults:
    """Results; what could not be measured is None or empty.

    Args:
        layers: variance explained by position variance in the token subspace, at the input of each layer.
        shares: variance share of each term of the scores.
        means: position means of queries and keys.
        rises: effect of ablating each term.
        tables: overlap of position and token embeddings.
        read: energy of the first layer's projections in the position subspace.
        code: properties of the position embeddings.
    """

    layers: list[SubspaceShare]
    shares: Float[Tensor, "fives layers h terms"] | None
    means: PositionMeans | None
    rises: list[Estimate]
    tables: list[tuple[float | int, ...]]
    read: dict[str, float]
    code: EmbeddingProperties | None


class PositionContentSubspaces(Probe):
    """Position and content subspaces of the residual stream, and the decomposition of attention scores into both."""

    title = "Do position and content get in each other's way? Why add and not concatenate, why not a scalar?"

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts = time.perf_counter(), model.info
        whole = observation_sample(facts, data, ForwardBudget(without_logits=1))
        few = intervention_sample(facts, truncated(data, LENGTH), ForwardBudget(with_logits=9, without_logits=5))
        if few.count < 3 * GROUP_SIZE:
            raise NotApplicable(too_few_samples(few, f"cross-fitting needs {3 * GROUP_SIZE} texts or more"))
        streams = residual_at_positions(model, whole, choose_positions(whole, facts))
        layers = [position_share_in_token_subspace(x, ENERGY, seed) for x in streams]
        on_progress(fraction(0.3))
        scores = _decompose_and_ablate(model, few, seed, on_progress)
        on_progress(fraction(0.8))
        tables = embedding_overlap_and_properties(model, whole.length, seed)
        read = _read_directions(model, streams[0]) if layers[0].share is not None else Measured({})
        overlaps, code = tables.value
        found = SubspaceResults(layers, *scores.value, overlaps, read.value, code)
        estimates = _estimates(found, seed)
        words = {"whole": whole.description, "few": few.description, "noun": whole.noun, "energy": ENERGY}
        grade, effect = _grade(estimates)
        return Finding(
            question="position_content_subspaces",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer(found, {one.name: one for one in estimates}, effect),
            estimates=tuple(estimates),
            tables=tuple(_tables(found)),
            charts=tuple(_charts(found, seed)),
            pictures=_pictures(found, facts.causal),
            method=METHOD.format(**words, what=metric_for(model, few, seed).name),
            null=NULL,
            caveats=(
                "Means over few texts are noisy. Shares are corrected for it, heatmaps are not.",
                *sample_caveats([whole, few], missing_parts(scores, tables, read)),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _read_directions(subject: ModelAdapter, x: Stream) -> Measured[dict[str, float]]:
    name = "position directions of the projections"
    return attempt(name, lambda: position_selectivity(subject, x, ENERGY), {})


def _decompose_and_ablate(
    subject: ModelAdapter, short: Sample, seed: int, on_progress: OnProgress
) -> Measured[tuple[Float[Tensor, "fives layers h terms"] | None, PositionMeans | None, list[Estimate]]]:
    """Decompose the scores, and ablate each term."""
    try:
        scales = score_scales(subject, short)
        shares, means = score_variance_shares(subject, short, scales), position_means(subject, short)
        noise = [position_means(subject, short, seed + turn) for turn in range(CONTROLS)]
    except NotApplicable as reason:
        return Measured((None, None, []), {"terms of the scores": str(reason)})
    base, found = metric_for(subject, short, seed), []
    usual = base.per_text()
    arms = [(means, (term,)) for term in range(len(TERMS))] + [(own, POSITION_TERMS) for own in (means, *noise)]
    rises = []
    for turn, (own, terms) in enumerate(arms):
        base.subject = InterventionAdapter(subject, AblatedTerms(own, terms, scales))
        rises.append(base.per_text() - usual)
        on_progress(fraction(0.5 + 0.3 * turn / len(arms)))
    for name, values in zip(TERMS, rises, strict=False):
        # what an ablation of noise does is known for all terms together only
        null = 0.0 if name == TERMS[0] else None
        found.append(mean_estimate(f"increase, {name} ablated", values, seed, base.unit, null))
    all_terms, *controls = rises[len(TERMS) :]
    found.append(excess_over_controls(POSITION_EFFECT, all_terms, controls, base.unit))
    return Measured((shares, means, found))


def _estimates(found: SubspaceResults, seed: int) -> list[Estimate]:
    estimates = []
    for name, own in (("input", found.layers[0]), ("final layer", found.layers[-1])):
        if own.share is not None:
            plain = share_estimate(f"position variance in the token subspace, {name}", own.share)
            null = {"null": own.chance, "null_low": own.low, "null_high": own.high, "unit": POSITION_UNIT}
            estimates.append(plain.model_copy(update=null))
    for energy, _, _, value, chance, low, high, _ in found.tables[:1]:
        name = f"overlap of position and token embeddings, {energy:.0%} of the energy"
        estimates.append(Estimate(name=name, value=value, null=chance, null_low=low, null_high=high, unit="share"))
    if found.shares is not None:
        means = found.shares.mean((1, 2)).numpy()
        for place, name in enumerate(TERM_NAMES):
            null = None if place == 0 else 0.0
            estimates.append(group_estimate(f"share of score variance: {name}", means[:, place], "of variance", null))
    estimates += found.rises
    estimates += [
        Estimate(
            name=f"energy of W_{name[0]} in position directions, layer 1",
            value=value,
            null=1.0,
            unit="times the share of dimensions",
        )
        for name, value in found.read.items()
    ]
    return estimates if found.code is None else [*estimates, *_embedding_estimates(found.code, seed)]


def _embedding_estimates(code: EmbeddingProperties, seed: int) -> list[Estimate]:
    """Linear separability of positions, and linear readouts from their embeddings."""
    separable, own = float((code.hull_distances > 0).mean()), code.readouts
    estimates = [
        Estimate(name="positions linearly separable from the others", value=separable, unit="share"),
        Estimate(name="the same for a scalar position in [0, 1]", value=2 / len(code.hull_distances), unit="share"),
    ]
    for name, kind in (
        ("the position predicted from its embedding", "ramp"),
        ("sawtooths predicted from the embedding", "saws"),
        ("sines predicted from the embedding", "sines"),
        ("binary digits predicted from the embedding", "bits"),
    ):
        # averaged over wavelengths
        values, null = (getattr(of, kind).reshape(len(own.ramp), -1).mean(1) for of in (own, code.random_readouts))
        estimates.append(mean_estimate(f"R^2 of {name}", values, seed, "", float(null.mean())))
    return estimates


def _tables(found: SubspaceResults) -> list[Table]:
    tables = []
    if found.tables:
        columns = (
            "share of the energy",
            "dimensions, positions",
            "dimensions, tokens",
            "overlap",
            "by chance",
            "from",
            "to",
            "largest cosine",
        )
        tables.append(
            Table(title="Overlap of position and token embeddings", columns=columns, rows=tuple(found.tables))
        )
    if found.shares is not None:
        means = found.shares.mean(0)
        rows = [
            (layer + 1, head + 1, *(float(x) for x in means[layer, head]))
            for layer, head in np.ndindex(*means.shape[:2])
        ]
        title = "Decomposition of the score variance of each head"
        tables.append(Table(title=title, columns=("layer", "head", *TERM_NAMES), rows=tuple(rows)))
    return tables


def _charts(found: SubspaceResults, seed: int) -> list[Chart]:
    shares = {layer: own.share for layer, own in enumerate(found.layers) if own.share is not None}
    across, charts = list(shares), []
    if len(across) > 1:
        places = tuple(float(layer) for layer in across)
        low, middle, high = (tuple(getattr(found.layers[layer], end) for layer in across)
                             for end in ("low", "chance", "high"))  # fmt: skip
        chance = Line(name="by chance", x=places, y=middle, low=low, high=high, null=True)
        lines = (interval_line("position", across, list(shares.values())), chance)
        caption = (
            f"Token subspace: directions that hold {ENERGY:.0%} of the token variance. 0: input of the first layer."
        )
        title = "Position variance in the token subspace"
        charts.append(Chart(title=title, x="after layer", y="share", lines=lines, caption=caption))
    if found.shares is not None:
        means = found.shares.mean(2).numpy()
        layers = range(1, means.shape[1] + 1)
        lines = tuple(
            interval_line(name, layers, list(zip(*student_intervals(means[:, :, place]), strict=True)))
            for place, name in enumerate(TERM_NAMES)
        )
        title = "Decomposition of the within-row variance of scores"
        charts.append(Chart(title=title, x="layer", y="share of variance", lines=lines))
    if found.code is not None:
        code, waves = found.code.readouts, found.code.readouts.wavelengths
        kinds = (("sawtooth", code.saws, False), ("sine", code.sines, False), ("binary digit", code.bits, False),
                 ("sawtooth, random table", found.code.random_readouts.saws, True))  # fmt: skip
        lines = tuple(mean_line(name, waves, values, seed, null) for name, values, null in kinds)
        title = "Linear readout from position embeddings"
        charts.append(Chart(title=title, x="wavelength", y="R^2", lines=lines, across="log"))
    return charts


def _pictures(found: SubspaceResults, causal: bool) -> tuple[HeatmapGrid, ...]:
    """Position-position scores of the heads in which they have the largest variance share."""
    if found.shares is None or found.means is None:
        return ()
    shares, means = found.shares.mean(0)[..., 3], found.means
    panels = []
    for place in shares.flatten().argsort(descending=True)[:SHOWN].tolist():
        layer, head = divmod(place, shares.shape[1])
        own = (means.q[layer][head] @ means.k[layer][head].T).cpu()
        seen = torch.ones_like(own).tril() if causal else torch.ones_like(own)
        own = (own - (own * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)) * seen
        largest = float(own.abs().max()) or 1.0
        name, note = (
            f"layer {layer + 1}, head {head + 1}",
            f"{format_percent(float(shares[layer, head]))} of its score variance",
        )
        panels.append(heatmap_of(name, (own / largest).numpy(), SIDE, note))
    title = "Position-position scores, rows centred, in the heads with the largest share of them"
    return (HeatmapGrid(title=title, x="key", y="query", panels=tuple(panels), middle=0.0),)


MOST_FIRST: tuple[Grade, ...] = ("yes", "weakly", "cannot be told", "no")
SHARED = {
    "yes": "more than random directions do",
    "weakly": "as much as random directions do",
    "no": "less than random directions do",
    "cannot be told": "with too wide an interval to compare it with random directions",
}


def _beside_chance(one: Estimate) -> Grade:
    """Whether position lies in the token subspace more than random directions do: yes, weakly as much, no less."""
    low, high = one.low or 0.0, one.high or 0.0
    if one.null_low is None or one.null_high is None or (low < one.null_low and high > one.null_high):
        return "cannot be told"
    return "yes" if low > one.null_high else "no" if high < one.null_low else "weakly"


def _grade(estimates: list[Estimate]) -> tuple[Grade, Estimate | None]:
    """Whether position shares the directions of tokens, at the input and after the last layer: one that differs is
    weakly. Without position in the residual stream, by the position terms of the scores.
    """
    placed = [one for one in estimates if one.name.startswith("position variance in the token subspace")]
    if placed:
        found = {_beside_chance(one): one for one in reversed(placed)}
        told = [grade for grade in MOST_FIRST if grade in found and grade != "cannot be told"]
        grade = told[0] if len(told) == 1 else "weakly" if told else "cannot be told"
        return grade, found[told[0]] if told else placed[0]
    terms = [one for one in estimates if one.name in {f"share of score variance: {name}" for name in TERMS[1:]}]
    clear = [one for one in terms if one.low is not None and one.low > 0]
    # scores by position, but no position in the residual stream: nothing that tokens could collide with
    return "no", max(clear or terms or estimates, key=lambda one: one.value, default=None)


def _answer(found: SubspaceResults, estimates: dict[str, Estimate], effect: Estimate | None) -> str:
    sentences = []
    for name in ("input", "final layer"):
        own = estimates.get(f"position variance in the token subspace, {name}")
        where = "At the input of the first layer" if name == "input" else "After the last layer"
        if own is None:
            sentences.append(f"{where} no position information is detectable.")
            continue
        value = (
            "" if own is effect else f" ({format_value(own)}; by chance {own.null_low:.2g} to {own.null_high:.2g})"
        )
        sentences.append(f"{where} position lies in the directions of tokens {SHARED[_beside_chance(own)]}{value}.")
    if found.shares is not None:
        parts = [
            f"{name} {format_percent(estimates[f'share of score variance: {name}'].value)}" for name in TERM_NAMES
        ]
        sentences.append(f"Within-row variance of scores: {', '.join(parts)}.")
    if (harm := estimates.get(POSITION_EFFECT)) is not None:
        sure = harm.low is not None and harm.low > 0
        sentences.append(
            f"Ablating all terms with position does {'more' if sure else 'no more'} than ablating noise: "
            f"{format_estimate(harm)}."
        )
    if (separable := estimates.get("positions linearly separable from the others")) is not None:
        alone = estimates["the same for a scalar position in [0, 1]"]
        sentences.append(
            f"A head could attend to {format_percent(separable.value)} of the positions alone; with a scalar in "
            f"[0, 1], to {format_percent(alone.value)}."
        )
    return " ".join(sentences)
