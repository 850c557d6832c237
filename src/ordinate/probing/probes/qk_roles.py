"""Roles of queries and keys: symmetry of W_q W_k^T, and ablations of queries, keys, scores and the scale."""

import time

import numpy as np
from numpy import ndarray

from ordinate.core.finding import Chart, Estimate, Finding, Grade, HeatmapGrid, Line, Table
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import Hooks, ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures import relative_symmetry
from ordinate.probing.measures.alternative_normalisers import SINKHORN_ITERATIONS
from ordinate.probing.measures.formatting import (
    describe_effects,
    format_percent,
    heatmap_of,
    mean_estimate,
    mean_line,
    sample_caveats,
)
from ordinate.probing.measures.measured import Measured, attempt, missing_parts
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.qk_ablations import ablation_ranks, qk_ablations
from ordinate.probing.measures.qk_interventions import MAX_TOKENS, score_symmetry
from ordinate.probing.measures.qk_symmetry import ENERGY, EXCHANGEABLE, QKSymmetry, measure_qk_symmetry
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    truncated,
)
from ordinate.probing.measures.score_scale import relative_entropy, share_outside_hull

METHOD = (
    "Weights: s = tr(M M) / |M|^2 of M = W_q W_k^T of each head, with the weight of the preceding norm folded in; "
    "(1 + s) / 2 of the squared norm is symmetric, (1 - s) / 2 antisymmetric; the positive part of the symmetric "
    "part is that of its positive eigenvalues; queries and keys could be exchanged where scores before and after "
    "the exchange have a cosine of {exchangeable:g} or more at every measured offset, and could be one matrix where "
    "the symmetric part is also positive to {exchangeable:.0%}; "
    "under grouped-query attention each query head with its key head; p-values against random heads with the same "
    "singular values but independent queries and keys, adjusted over heads by Benjamini and Hochberg; under RoPE "
    "also at offsets, with M = W_q R W_k^T and R the relative rotation between two tokens, or patches, at that "
    "offset; class tokens and registers are left out. Tokens: symmetry of the score matrix of {whole} without a "
    "causal mask, with rows and columns centred. Ablations: in all heads queries are replaced by keys, or keys by "
    "queries, or both are swapped; or only the symmetric or the antisymmetric part of the scores is kept; the "
    "control rotates queries randomly; under grouped-query attention keys are replaced by the mean of their group's "
    "queries. Rank: only the largest singular values of each M are kept, under RoPE those of all its rotated "
    "versions together; then the largest of the scores between queries and keys of some {noun}; the control keeps as "
    "many random directions. Scale: the scale of the scores, measured with queries or keys at 0, is removed or moved "
    "behind the softmax. Other normalisers: sigmoid(score - log n) with n visible keys; or Sinkhorn normalisation of "
    "rows and columns, {divisions} iterations. An output is outside the convex hull of the values if a hyperplane "
    "separates it from all of them. Each time the {what} of {few} is compared with that of the unchanged model. "
    "Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "Independent queries and keys: s of 1 / {width}, with a standard deviation of {spread:.2g} per head; half of the "
    "symmetric part is positive. Ablations: 0; rotating queries randomly shows how much the model relies on scores."
)
CAVEATS = (
    "The model was not trained with these ablations: a model trained that way may perform well.",
    "The symmetry of the weights ignores biases of queries and keys, and norms applied to them.",
)
# an effect below this share of that of random rotation is no difference between queries and keys
MIN_EFFECT = 0.1
ANTISYMMETRIC = "antisymmetric part of W_q W_k^T, median head"
EXCHANGEABLE_HEADS = "heads whose queries and keys could be exchanged"
MERGEABLE_HEADS = "heads whose queries and keys could be one matrix"
MERGING_ARMS = ("queries and keys swapped", "queries replaced by keys", "keys replaced by queries")
# arms after which outputs are tested against the convex hull of the values
HULL_ARMS = ("scale after the softmax", "sigmoid instead of softmax", "Sinkhorn instead of softmax")

RANDOM_SUFFIX = ", random directions"
RANK_LINES = (
    ("largest singular values of W_q W_k^T", ""),
    ("largest singular values of scores on real tokens", " from scores on real tokens"),
    ("random directions", RANDOM_SUFFIX),
)


class QKRoles(Probe):
    """Roles of queries and keys: symmetry of W_q W_k^T, and ablations of queries, keys, scores and the scale."""

    title = "Are Q and K really different? Could they be one matrix, and does the scale belong inside?"

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts = time.perf_counter(), model.info
        whole = observation_sample(facts, truncated(data, MAX_TOKENS), ForwardBudget(without_logits=1))
        few = intervention_sample(facts, data, ForwardBudget(20))
        symmetry = measure_qk_symmetry(model, few, seed)
        on_progress(fraction(0.2))
        scores = attempt("symmetry of scores", lambda: score_symmetry(model, whole).numpy())
        weights, like = symmetry.value, scores.value
        on_progress(fraction(0.3))
        ablated = _ablation_estimates(model, few, weights, seed, on_progress)
        entropy = attempt("entropy of attention", lambda: _entropy_estimates(model, few, seed), [])
        harm, missing = ablated.value + entropy.value, missing_parts(symmetry, scores, ablated, entropy)
        if weights is None and like is None and not harm:
            raise NotApplicable("; ".join(dict.fromkeys(missing.values())))
        estimates = [*_weight_estimates(weights, facts.width), *_token_estimates(like, seed), *harm]
        named = {one.name: one for one in estimates}
        words = {"whole": whole.description, "few": few.description, "noun": few.noun}
        words |= {"what": metric_for(model, few, seed).name}
        grade, effect = _grade(named, weights)
        return Finding(
            question="qk_roles",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer(named),
            estimates=tuple(estimates),
            tables=() if weights is None else (_table(weights, like),),
            charts=(*_charts(weights, like, seed), *_rank_charts(weights, named)),
            pictures=_pictures(weights, like),
            method=METHOD.format(**words, exchangeable=EXCHANGEABLE, divisions=SINKHORN_ITERATIONS),
            null=NULL.format(width=facts.width, spread=2**0.5 / facts.width),
            caveats=(*CAVEATS, *sample_caveats([whole, few], missing)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _ablation_estimates(
    subject: ModelAdapter, chosen: Sample, weights: QKSymmetry | None, seed: int, on_progress: OnProgress
) -> Measured[list[Estimate]]:
    """Effect of ablating queries, keys and scores, and whether outputs stay in the hull of the values."""
    ablations = qk_ablations(subject, chosen, weights, seed)
    (arms, scales), missing = ablations.value, dict(ablations.missing)
    base, found = metric_for(subject, chosen, seed), list[Estimate]()
    usual = base.per_text()
    for turn, (name, watch) in enumerate(arms.items()):
        base.subject = InterventionAdapter(subject, watch)
        try:
            found.append(mean_estimate(f"increase, {name}", base.per_text() - usual, seed, base.unit))
        except NotApplicable as reason:
            missing[name] = str(reason)
        on_progress(fraction(0.3 + 0.6 * turn / len(arms)))
    found += _scale_estimates(scales or [])
    behind = {"unchanged": Hooks()} | {name: arms[name] for name in HULL_ARMS if name in arms}
    hull = _hull_estimates(subject, chosen, behind, seed)
    return Measured([*found, *hull.value], {**missing, **hull.missing})


def _scale_estimates(scales: list[float]) -> list[Estimate]:
    """The scale of the scores; that of the first and the last layer if layers differ."""
    if not scales or max(scales) - min(scales) < 1e-3 * max(scales):
        return [Estimate(name="scale of the scores", value=one) for one in scales[:1]]
    layers = {1: scales[0], len(scales): scales[-1]}
    return [Estimate(name=f"scale of the scores, layer {layer}", value=one) for layer, one in layers.items()]


def _hull_estimates(
    subject: ModelAdapter, chosen: Sample, arms: dict[str, Hooks], seed: int
) -> Measured[list[Estimate]]:
    """Share of outputs that are no convex combination of values."""
    found, missing = list[Estimate](), dict[str, str]()
    try:
        for name, watch in arms.items():
            away = share_outside_hull(subject, chosen, watch).mean(1).numpy()
            found.append(mean_estimate(f"outputs outside the convex hull of the values, {name}", away, seed, "share"))
    except NotApplicable as reason:
        missing["convex hull of the values"] = str(reason)
    return Measured(found, missing)


def _entropy_estimates(subject: ModelAdapter, few: Sample, seed: int) -> list[Estimate]:
    """Relative entropy of attention."""
    values = relative_entropy(subject, few).mean(1).numpy()
    return [mean_estimate("entropy of attention", values, seed, "of uniform attention", 1.0)]


def _weight_estimates(weights: QKSymmetry | None, width: int) -> list[Estimate]:
    if weights is None:
        return []
    sure = weights.adjusted_p <= 0.05
    heads, each = weights.projections[0].query.shape[0], weights.projections[0].query.shape[-1]
    kept = (heads + len(weights.projections[0].key)) * each
    odd, chance = (1 - float(np.median(weights.symmetry))) / 2, (1 - 1 / width) / 2
    low, high = ((1 - end) / 2 for end in reversed(weights.null_interval))
    count, more = f"of {weights.symmetry.size}", weights.symmetry > 1 / width
    found = [
        Estimate(name=ANTISYMMETRIC, value=odd, null=chance, null_low=low,
                 null_high=high, unit="of its squared norm"),
        Estimate(name="symmetric part of W_q W_k^T, median head", value=1 - odd, null=1 - chance,
                 null_low=1 - high, null_high=1 - low, unit="of its squared norm"),
        Estimate(name="positive part of the symmetric part, median head", value=float(np.median(weights.positive)),
                 null=0.5, unit="of its squared norm"),
        *(Estimate(name=name, value=float(own.sum()), unit=count)
          for name, own in ((EXCHANGEABLE_HEADS, weights.exchangeable), (MERGEABLE_HEADS, weights.mergeable))
          if own is not None),
        Estimate(name="heads more symmetric than chance", value=float((sure & more).sum()), null=0.0, unit=count),
        Estimate(name="heads less symmetric than chance", value=float((sure & ~more).sum()), null=0.0, unit=count),
        Estimate(name="symmetry of the sum of heads, median layer", value=float(np.median(weights.symmetry_of_sum)),
                 null=0.0),
        Estimate(name="parameters of merged matrices", value=heads * width / kept, unit="times those of W_q and W_k"),
        Estimate(name=f"rank for {ENERGY:.0%} of the squared norm, median head", value=float(np.median(weights.rank)),
                 unit=f"of {each}"),
    ]  # fmt: skip
    return [*found, *relative_symmetry.symmetry_estimates(weights, width)]


def _token_estimates(like: ndarray | None, seed: int) -> list[Estimate]:
    return [] if like is None else [mean_estimate("symmetry of scores on real tokens", like.mean((1, 2)), seed, "")]


def _table(weights: QKSymmetry, like: ndarray | None) -> Table:
    seen, rows = None if like is None else like.mean(0), []
    for layer, head in np.ndindex(*weights.symmetry.shape):
        s = float(weights.symmetry[layer, head])
        own = (
            (1 + s) / 2,
            (1 - s) / 2,
            float(weights.positive[layer, head]),
            None if weights.exchange is None else float(weights.exchange[layer, head]),
            s,
            float(weights.adjusted_p[layer, head]),
            float(weights.symmetry_without_norm[layer, head]),
        )
        on_tokens = None if seen is None else float(seen[layer, head])
        rows.append((layer + 1, head + 1, *own, on_tokens, weights.rank[layer][head]))
    columns = ("layer", "head", "symmetric part", "antisymmetric part", "positive, of the symmetric part",
               "cosine of scores before and after the exchange", "symmetry", "adjusted p", "without the norm weight",
               "on tokens", "rank")  # fmt: skip
    return Table(title="Symmetry of each head", columns=columns, rows=tuple(rows))


def _charts(weights: QKSymmetry | None, like: ndarray | None, seed: int) -> list[Chart]:
    found, lines = [], []
    if weights is not None:
        layers = tuple(float(layer + 1) for layer in range(len(weights.symmetry)))
        low, middle, high = (tuple(x.tolist()) for x in np.percentile(weights.symmetry, [10, 50, 90], axis=1))
        lines.append(Line(name="weights, middle 80 % of heads", x=layers, y=middle, low=low, high=high))
    if like is not None:
        lines.append(mean_line("scores on tokens", range(1, like.shape[1] + 1), like.mean(2), seed))
    if lines:
        ends = (1.0, float(len(lines[0].x)))
        lines.append(Line(name="random weights", x=ends, y=(0.0, 0.0), null=True))
        found.append(Chart(title="Symmetry of heads by layer", x="layer", y="symmetry", lines=tuple(lines)))
    return found if weights is None else [*found, *relative_symmetry.symmetry_charts(weights)]


def _rank_charts(weights: QKSymmetry | None, found: dict[str, Estimate]) -> list[Chart]:
    """Effect of low-rank truncation by rank."""
    kept = {} if weights is None else {f"increase, rank {rank}": rank for rank in ablation_ranks(weights)}
    lines = []
    for name, more in RANK_LINES:
        ends = [(rank, found[one + more]) for one, rank in kept.items() if one + more in found]
        if ends:
            x, y = tuple(float(rank) for rank, _ in ends), tuple(one.value for _, one in ends)
            low, high = (tuple(getattr(one, end) for _, one in ends) for end in ("low", "high"))
            lines.append(Line(name=name, x=x, y=y, low=low, high=high, null=more == RANDOM_SUFFIX))
    if not lines or weights is None:
        return []
    width, each = weights.projections[0].query.shape[1:]
    unit = found["increase, queries randomly rotated"].unit
    caption = (
        f"{each} dimensions per head. Two matrices of {width} x {each} hold any W_q W_k^T; a merged matrix of "
        f"{width} x {width} holds no more."
    )
    title = "Effect of truncating W_q W_k^T to a low rank"
    return [Chart(title=title, x="rank", y=f"increase [{unit}]", lines=tuple(lines), caption=caption, across="log")]


def _pictures(weights: QKSymmetry | None, like: ndarray | None) -> tuple[HeatmapGrid, ...]:
    if weights is None:
        return ()
    panels = [heatmap_of("weights", weights.symmetry)]
    panels += [] if like is None else [heatmap_of("on tokens", like.mean(0))]
    whole = HeatmapGrid(title="Symmetry of each head", x="head", y="layer", panels=tuple(panels), first=1, middle=0.0)
    return whole, *relative_symmetry.symmetry_heatmaps(weights)


def _grade(found: dict[str, Estimate], weights: QKSymmetry | None) -> tuple[Grade, Estimate]:
    """Whether queries and keys differ: by the least harmful way to exchange or merge them, or by the weights."""
    arms = [found[name] for arm in MERGING_ARMS if (name := f"increase, {arm}") in found]
    control = found.get("increase, queries randomly rotated")
    if arms and control is not None:
        least = min(arms, key=lambda one: one.value)
        # where even random queries do no harm, the model does not rely on its scores
        relies = control.graded(0.0) == "yes"
        return least.graded(MIN_EFFECT * control.value) if relies else "cannot be told", least
    same = None if weights is None else weights.exchangeable
    if same is None:
        return "cannot be told", next(iter(found.values()))
    return "no" if same.all() else "weakly" if same.any() else "yes", found[ANTISYMMETRIC]


def _answer(found: dict[str, Estimate]) -> str:
    sentences = []
    if odd := found.get(ANTISYMMETRIC):
        more = found["heads more symmetric than chance"]
        sentences.append(
            f"By their weights {format_percent(odd.value)} of W_q W_k^T is antisymmetric in the median head (chance: "
            f"{format_percent(odd.null or 0.0)}); {more.value:.0f} {more.unit} heads are more symmetric than chance."
        )
    if EXCHANGEABLE_HEADS in found:
        one, other = found[EXCHANGEABLE_HEADS], found[MERGEABLE_HEADS]
        sentences.append(
            f"Queries and keys could be exchanged in {one.value:.0f} {one.unit} heads, and be one matrix in "
            f"{other.value:.0f}."
        )
    done = {
        "queries replaced by keys": "Replacing queries by keys",
        "queries and keys swapped": "exchanging both",
        "scores symmetrised": "symmetrising the scores",
        "scores antisymmetrised": "antisymmetrising them",
        "queries randomly rotated": "rotating queries randomly",
        "scale removed": "removing the scale",
        "scale after the softmax": "moving it behind the softmax",
        "sigmoid instead of softmax": "replacing the softmax by a sigmoid",
    }
    harm = describe_effects(
        {words: found[f"increase, {name}"] for name, words in done.items() if f"increase, {name}" in found}
    )
    return " ".join([*sentences, f"{harm[0].upper()}{harm[1:]}." if harm else ""]).strip()
