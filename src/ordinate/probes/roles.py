"""Whether queries and keys play different parts, and what it would cost to make one of them."""

import time

import numpy as np
from numpy import ndarray

from ordinate.finding import Chart, Estimate, Finding, Line, Picture, Table
from ordinate.measures import apart
from ordinate.measures.contrasts import contrasts, ranks_of
from ordinate.measures.harm import gauge
from ordinate.measures.intervening import Intervened
from ordinate.measures.meeting import SHORT, transposed
from ordinate.measures.normalising import DIVISIONS
from ordinate.measures.presenting import Passes, Sample, beginnings, changed, looked_at
from ordinate.measures.scaling import out_of_hull, spread
from ordinate.measures.telling import costs, estimate_of, line_of, panel_of
from ordinate.measures.weighing import ENERGY, Weighed, weighed
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Subject, Unfit, Watch

METHOD = (
    "Weights: s = tr(M M) / |M|^2 of M = W_q W_k^T of each head, what the norm before multiplies by folded in; each "
    "head of queries with the head of keys that it meets; p-values by heads of the same singular values whose "
    "queries and keys have nothing to do with each other, adjusted for all heads by Benjamini and Hochberg; under "
    "rope also at offsets, M then being W_q R W_k^T, R the turn between two tokens, or patches, that are so far "
    "apart; what stands in front of patches has no part in it. Tokens: how like their transpose scores are on "
    "{whole}, everyone seeing everyone, means of rows and columns left out. Harm: in all heads queries take the "
    "place of keys, or keys that of queries, or both; or only the symmetric or the antisymmetric part of scores is "
    "kept; the control turns queries by a random rotation; where heads of queries share one of keys, their mean "
    "takes its place. Rank: of each head the largest singular values of M alone are kept, under rope those of all "
    "its turns side by side; then the largest of the scores that queries and keys of some {noun} give, each with "
    "each; the control keeps as many directions drawn at random. Scale: what products are multiplied by, found by "
    "doubling queries, is left out of the softmax, and put behind it. Other weights: sigmoid(score - log n), n the "
    "keys that are seen; or rows and columns divided by their sums in turns, {divisions} times. An output is "
    "outside the hull of the values if a direction separates it from all of them. Each time the {what} of {few} is "
    "compared with that of the same untouched. Intervals: 95 %, bootstrap over {noun}."
)
NULL = "Queries and keys that have nothing to do with each other: s of 1 / {width}, give or take {spread:.2g} a head."
# after these what comes out is held against the values it was made of
BEHIND = ("scale outside", "weights by a sigmoid", "weights by Sinkhorn's divisions")

CHANCE = " at random"
LINES = (
    ("the largest of the weights", ""),
    ("the largest of scores on tokens", " of scores on tokens"),
    ("as many at random", CHANCE),
)


class Roles(Probe):
    """Whether queries and keys play different parts, and what it would cost to make one of them."""

    title = "Are Q and K really different? Could they be one matrix, and does the scale belong inside?"

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        whole = looked_at(facts, beginnings(material, SHORT), Passes(headless=1))
        few = changed(facts, material, Passes(20))
        weights = weighed(subject, few, seed, reasons)
        tell(0.2)
        like = _like(subject, whole, reasons)
        tell(0.3)
        harm = [*_harm(subject, few, weights, seed, reasons, tell), *_spread(subject, few, seed, reasons)]
        if weights is None and like is None and not harm:
            raise Unfit("; ".join(dict.fromkeys(reasons.values())))
        estimates = [*_of_weights(weights, facts.width), *_of_tokens(like, seed), *harm]
        words = {"whole": whole.size, "few": few.size, "noun": few.noun, "what": gauge(subject, few, seed).name}
        words |= {"divisions": DIVISIONS}
        return Finding(
            question="roles",
            title=self.title,
            answer=_answer({one.name: one for one in estimates}, facts.width),
            estimates=tuple(estimates),
            tables=() if weights is None else (_table(weights, like),),
            charts=(*_charts(weights, like, seed), *_by_rank(weights, {one.name: one for one in estimates})),
            pictures=_pictures(weights, like),
            method=METHOD.format(**words),
            null=NULL.format(width=facts.width, spread=2**0.5 / facts.width),
            caveats=(
                "What is done to queries and keys, a model was not trained for: one that is trained so may do well.",
                "Norms of queries and keys, and biases of theirs, have no part in the scores of weights.",
                *whole.left_out,
                *few.left_out,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _like(subject: Subject, chosen: Sample, reasons: dict[str, str]) -> ndarray | None:
    try:
        return transposed(subject, chosen).numpy()
    except Unfit as reason:
        reasons["symmetry of scores"] = str(reason)
        return None


def _harm(
    subject: Subject, chosen: Sample, weights: Weighed | None, seed: int, reasons: dict[str, str], tell: Tell
) -> list[Estimate]:
    """What it costs to change queries, keys and scores, and what that makes of the outputs."""
    arms, scale = contrasts(subject, chosen, weights, seed, reasons)
    base, found = gauge(subject, chosen, seed), []
    usual = base.measure()
    for turn, (name, watch) in enumerate(arms.items()):
        base.subject = Intervened(subject, watch)
        try:
            found.append(estimate_of(f"rise, {name}", base.measure() - usual, seed, base.unit))
        except Unfit as reason:
            reasons[name] = str(reason)
        tell(0.3 + 0.6 * turn / len(arms))
    if scale is not None:
        found.append(Estimate(name="scale of the scores", value=scale))
    behind = {"as it is": Watch()} | {name: arms[name] for name in BEHIND if name in arms}
    return [*found, *_of_outputs(subject, chosen, behind, seed, reasons)]


def _of_outputs(
    subject: Subject, chosen: Sample, arms: dict[str, Watch], seed: int, reasons: dict[str, str]
) -> list[Estimate]:
    """Whether what comes out is a mean of values."""
    found = []
    try:
        for name, watch in arms.items():
            away = out_of_hull(subject, chosen, watch).mean(1).numpy()
            found.append(estimate_of(f"outputs outside the hull of the values, {name}", away, seed, "share"))
    except Unfit as reason:
        reasons["outputs and their values"] = str(reason)
    return found


def _spread(subject: Subject, few: Sample, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    """How peaked the weights are."""
    try:
        values = spread(subject, few).mean(1).numpy()
    except Unfit as reason:
        reasons["spread of the weights"] = str(reason)
        return []
    return [estimate_of("entropy of the weights", values, seed, "of looking at all alike", 1.0)]


def _of_weights(weights: Weighed | None, width: int) -> list[Estimate]:
    if weights is None:
        return []
    sure = weights.q <= 0.05
    heads, each = weights.layers[0].query.shape[0], weights.layers[0].query.shape[-1]
    kept = (heads + len(weights.layers[0].key)) * each
    ends = {"null": 1 / width, "null_low": weights.chance[0], "null_high": weights.chance[1]}
    count, more = f"of {weights.folded.size}", weights.folded > 1 / width
    found = [
        Estimate(name="symmetry of a head, median", value=float(np.median(weights.folded)), **ends),
        Estimate(name="heads more symmetric than chance", value=float((sure & more).sum()), null=0.0, unit=count),
        Estimate(name="heads less symmetric than chance", value=float((sure & ~more).sum()), null=0.0, unit=count),
        Estimate(name="symmetry of the sum of heads, median layer", value=float(np.median(weights.summed)), null=0.0),
        Estimate(name="numbers of merged matrices", value=heads * width / kept, unit="times those of both"),
        Estimate(name=f"rank that holds {ENERGY:.0%}, median head", value=float(np.median(weights.rank)),
                 unit=f"of {each}"),
    ]  # fmt: skip
    return [*found, *apart.estimates(weights, width)]


def _of_tokens(like: ndarray | None, seed: int) -> list[Estimate]:
    return [] if like is None else [estimate_of("symmetry of scores on tokens", like.mean((1, 2)), seed, "")]


def _table(weights: Weighed, like: ndarray | None) -> Table:
    seen, rows = None if like is None else like.mean(0), []
    for layer, head in np.ndindex(*weights.folded.shape):
        own = (float(weights.folded[layer, head]), float(weights.q[layer, head]), float(weights.bare[layer, head]))
        on_tokens = None if seen is None else float(seen[layer, head])
        rows.append((layer + 1, head + 1, *own, on_tokens, weights.rank[layer][head]))
    columns = ("layer", "head", "symmetry", "adjusted p", "without the norm's gain", "on tokens", "rank")
    return Table(title="How symmetric each head is", columns=columns, rows=tuple(rows))


def _charts(weights: Weighed | None, like: ndarray | None, seed: int) -> list[Chart]:
    found, lines = [], []
    if weights is not None:
        layers = tuple(float(layer + 1) for layer in range(len(weights.folded)))
        low, middle, high = (tuple(x.tolist()) for x in np.percentile(weights.folded, [10, 50, 90], axis=1))
        lines.append(Line(name="weights, middle 80 % of heads", x=layers, y=middle, low=low, high=high))
    if like is not None:
        lines.append(line_of("scores on tokens", range(1, like.shape[1] + 1), like.mean(2), seed))
    if lines:
        ends = (1.0, float(len(lines[0].x)))
        lines.append(Line(name="random weights", x=ends, y=(0.0, 0.0), null=True))
        found.append(Chart(title="How symmetric heads are", x="layer", y="symmetry", lines=tuple(lines)))
    return found if weights is None else [*found, *apart.charts(weights)]


def _by_rank(weights: Weighed | None, found: dict[str, Estimate]) -> list[Chart]:
    """What it costs to keep fewer directions in which queries meet keys."""
    kept = {} if weights is None else {f"rise, rank {rank}": rank for rank in ranks_of(weights)}
    lines = []
    for name, more in LINES:
        ends = [(rank, found[one + more]) for one, rank in kept.items() if one + more in found]
        if ends:
            x, y = tuple(float(rank) for rank, _ in ends), tuple(one.value for _, one in ends)
            low, high = (tuple(getattr(one, end) for _, one in ends) for end in ("low", "high"))
            lines.append(Line(name=name, x=x, y=y, low=low, high=high, null=more == CHANCE))
    if not lines or weights is None:
        return []
    width, each = weights.layers[0].query.shape[1:]
    unit = found["rise, queries turned at random"].unit
    caption = (
        f"Of {each} directions a head. Two matrices of {width} x {each} hold any of them; one merged matrix of "
        f"{width} x {width} holds no more."
    )
    title = "What it costs to keep fewer directions of W_q W_k^T"
    return [Chart(title=title, x="rank", y=f"rise [{unit}]", lines=tuple(lines), caption=caption, across="log")]


def _pictures(weights: Weighed | None, like: ndarray | None) -> tuple[Picture, ...]:
    if weights is None:
        return ()
    panels = [panel_of("weights", weights.folded)]
    panels += [] if like is None else [panel_of("on tokens", like.mean(0))]
    whole = Picture(title="Symmetry of each head", x="head", y="layer", panels=tuple(panels), first=1, middle=0.0)
    return whole, *apart.pictures(weights)


def _answer(found: dict[str, Estimate], width: int) -> str:
    told = []
    if middle := found.get("symmetry of a head, median"):
        more = found["heads more symmetric than chance"]
        told.append(
            f"The median head has symmetry {middle.value:.2g} (1: queries and keys could be one; by chance "
            f"{1 / width:.1g}); {more.value:.0f} {more.unit} heads are more symmetric than chance."
        )
    done = {
        "keys in the place of queries": "Putting keys in the place of queries",
        "symmetric part of scores alone": "keeping the symmetric part of scores",
        "queries turned at random": "turning queries at random",
        "scale left out": "leaving the scale out",
        "weights by a sigmoid": "weighing each token by a sigmoid alone",
    }
    harm = costs({words: found[f"rise, {name}"] for name, words in done.items() if f"rise, {name}" in found})
    return " ".join([*told, f"{harm[0].upper()}{harm[1:]}." if harm else ""]).strip()
