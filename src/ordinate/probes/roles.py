"""Whether queries and keys play different parts, and what it would cost to make one of them."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.finding import Chart, Estimate, Finding, Line, Table
from ordinate.measures.harm import gauge
from ordinate.measures.intervening import Intervened
from ordinate.measures.meeting import OFFSETS, Exchanged, Mixed, Scaled, spread, transposed, turns
from ordinate.measures.presenting import Sample, sample
from ordinate.measures.telling import estimate_of, line_of, said
from ordinate.ops.discovery import adjusted
from ordinate.ops.symmetry import by_chance, ranks, summed_symmetry, symmetry, symmetry_by_offset
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Projection, Subject, Unfit, Watch

ENERGY = 0.95
METHOD = (
    "Weights: s = tr(M M) / |M|^2 of M = W_q W_k^T of each head, what the norm before multiplies by folded in; each "
    "head of queries with the head of keys that it meets; p-values by heads of random weights, adjusted for all "
    "heads by Benjamini and Hochberg; under rope also at offsets, M then being W_q R W_k^T. Tokens: how like their "
    "transpose scores are on {texts} {noun}, everyone seeing everyone, means of rows and columns left out. Harm: in "
    "all heads queries take the place of keys, or keys that of queries, or both; the control turns queries by a "
    "random rotation. Scale: the factor 1 / sqrt(d) is left out of the softmax, and put behind it. Each time the "
    "{what} is compared with the same {noun} untouched. Intervals: 95 %, bootstrap over {noun}."
)
NULL = "Random weights: s of 1 / {width}, give or take {spread:.2g}. 1: symmetric; -1: antisymmetric."


@dataclass(frozen=True)
class Weighed:
    """What the weights tell.

    Args:
        folded: the symmetry of each head, the norm's gain folded in.
        bare: the same without.
        summed: of the sum over the heads of each layer.
        rank: how many singular values of each M hold most of it.
        turned: the symmetry at each offset; None where nothing is turned.
        q: the adjusted p-value of each head.
        layers: the matrices.
    """

    folded: Float[ndarray, "layers h"]
    bare: Float[ndarray, "layers h"]
    summed: list[float]
    rank: list[list[int]]
    turned: Float[ndarray, "layers h offsets"] | None
    q: Float[ndarray, "layers h"]
    layers: list[Projection]


class Roles(Probe):
    """Whether queries and keys play different parts, and what it would cost to make one of them."""

    title = "Are Q and K really different? Could they be one matrix, and does the scale belong inside?"

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        chosen = sample(facts, material, passes=10)
        weighed = _weighed(subject, chosen, seed, reasons)
        tell(0.2)
        like = _like(subject, chosen, reasons)
        scale = gauge(subject, chosen, seed)
        tell(0.4)
        harm = _harm(subject, chosen, weighed, seed, reasons)
        if weighed is None and like is None and not harm:
            raise Unfit("; ".join(reasons.values()))
        estimates = [*_of_weights(weighed, facts.width), *_of_tokens(like, seed), *harm]
        words = {"texts": chosen.texts, "noun": chosen.noun, "what": scale.name}
        return Finding(
            question="roles",
            title=self.title,
            answer=_answer({one.name: one for one in estimates}, facts.width),
            estimates=tuple(estimates),
            tables=() if weighed is None else (_table(weighed, like),),
            charts=tuple(_charts(weighed, like, seed)),
            method=METHOD.format(**words),
            null=NULL.format(width=facts.width, spread=math.sqrt(2) / facts.width),
            caveats=(
                "What is done to queries and keys, a model was not trained for: one that is trained so may do well.",
                "Norms of queries and keys, and biases of theirs, have no part in the scores of weights.",
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _weighed(subject: Subject, chosen: Sample, seed: int, reasons: dict[str, str]) -> Weighed | None:
    try:
        layers = [subject.projection(layer) for layer in range(subject.facts.layers)]
    except Unfit as reason:
        reasons["symmetry of the weights"] = str(reason)
        return None
    found = [(own.gain[:, None] * own.query, own.gain[:, None] * own.key) for own in layers]
    turned = _turned(subject, chosen, found, reasons)
    folded = torch.stack([symmetry(q, k) for q, k in found]).cpu().numpy()
    return Weighed(
        folded,
        torch.stack([symmetry(own.query, own.key) for own in layers]).cpu().numpy(),
        [summed_symmetry(q, k) for q, k in found],
        [ranks(q, k, ENERGY) for q, k in found],
        turned,
        _p(folded, subject.facts.width, found[0][0].shape[-1], seed),
        layers,
    )


def _turned(
    subject: Subject, chosen: Sample, found: list[tuple[Tensor, Tensor]], reasons: dict[str, str]
) -> ndarray | None:
    if chosen.ids is None or chosen.length <= OFFSETS[-1]:
        return None
    try:
        by = turns(subject, chosen.ids[0], found[0][0].shape[-1])
    except Unfit as reason:
        reasons["symmetry at offsets"] = str(reason)
        return None
    if len(by) < len(found):
        return None
    return torch.stack([symmetry_by_offset(q, k, by[layer]) for layer, (q, k) in enumerate(found)]).numpy()


def _like(subject: Subject, chosen: Sample, reasons: dict[str, str]) -> ndarray | None:
    try:
        return transposed(subject, chosen).numpy()
    except Unfit as reason:
        reasons["symmetry of scores"] = str(reason)
        return None


def _harm(
    subject: Subject, chosen: Sample, weighed: Weighed | None, seed: int, reasons: dict[str, str]
) -> list[Estimate]:
    """What it costs to exchange queries and keys, and to move the scale."""
    each = subject.facts.width // subject.facts.heads
    each = each if weighed is None else weighed.layers[0].query.shape[-1]
    arms: dict[str, Watch] = {
        "queries and keys exchanged": Exchanged(queries=True, keys=True),
        "keys in the place of queries": Exchanged(queries=True, keys=False),
        "queries in the place of keys": Exchanged(queries=False, keys=True),
        "queries turned at random": Mixed(seed),
        "scale left out": Scaled(each, outside=False),
        "scale outside the softmax": Scaled(each, outside=True),
    }
    base, found = gauge(subject, chosen, seed), []
    usual = base.measure()
    for name, watch in arms.items():
        base.subject = Intervened(subject, watch)
        try:
            found.append(estimate_of(f"rise, {name}", base.measure() - usual, seed, base.unit))
        except Unfit as reason:
            reasons[name] = str(reason)
    try:
        own = spread(subject, chosen).mean(1).numpy()
    except Unfit as reason:
        reasons["spread of the weights"] = str(reason)
        return found
    return [*found, estimate_of("entropy of the weights", own, seed, "of looking at all alike", 1.0)]


def _p(values: ndarray, width: int, each: int, seed: int) -> ndarray:
    drawn = np.sort(np.abs(by_chance(width, each, seed).numpy() - 1 / width))
    reached = len(drawn) - np.searchsorted(drawn, np.abs(values - 1 / width))
    return adjusted((reached + 1) / (len(drawn) + 1))


def _of_weights(weighed: Weighed | None, width: int) -> list[Estimate]:
    if weighed is None:
        return []
    sure, chance = weighed.q <= 0.05, 2 * math.sqrt(2) / width
    heads, each = weighed.layers[0].query.shape[0], weighed.layers[0].query.shape[-1]
    kept = (heads + len(weighed.layers[0].key)) * each
    ends = {"null": 1 / width, "null_low": 1 / width - chance, "null_high": 1 / width + chance}
    count, more = f"of {weighed.folded.size}", weighed.folded > 1 / width
    found = [
        Estimate(name="symmetry of a head, median", value=float(np.median(weighed.folded)), **ends),
        Estimate(name="heads more symmetric than chance", value=float((sure & more).sum()), null=0.0, unit=count),
        Estimate(name="heads less symmetric than chance", value=float((sure & ~more).sum()), null=0.0, unit=count),
        Estimate(name="symmetry of the sum of heads, median layer", value=float(np.median(weighed.summed)), null=0.0),
        Estimate(name="numbers of merged matrices", value=heads * width / kept, unit="times those of both"),
        Estimate(name=f"rank that holds {ENERGY:.0%}, median head", value=float(np.median(weighed.rank)),
                 unit=f"of {each}"),
    ]  # fmt: skip
    if weighed.turned is not None:
        middle = np.median(weighed.turned, (0, 1))
        for place in (1, -1):
            name = f"symmetry of a head at offset {OFFSETS[place]}, median"
            found.append(Estimate(name=name, value=float(middle[place]), null=1 / width))
    return found


def _of_tokens(like: ndarray | None, seed: int) -> list[Estimate]:
    return [] if like is None else [estimate_of("symmetry of scores on tokens", like.mean((1, 2)), seed, "")]


def _table(weighed: Weighed, like: ndarray | None) -> Table:
    seen, rows = None if like is None else like.mean(0), []
    for layer, head in np.ndindex(*weighed.folded.shape):
        own = (float(weighed.folded[layer, head]), float(weighed.q[layer, head]), float(weighed.bare[layer, head]))
        on_tokens = None if seen is None else float(seen[layer, head])
        rows.append((layer + 1, head + 1, *own, on_tokens, weighed.rank[layer][head]))
    columns = ("layer", "head", "symmetry", "adjusted p", "without the norm's gain", "on tokens", "rank")
    return Table(title="How symmetric each head is", columns=columns, rows=tuple(rows))


def _charts(weighed: Weighed | None, like: ndarray | None, seed: int) -> list[Chart]:
    found, lines = [], []
    if weighed is not None:
        layers = tuple(float(layer + 1) for layer in range(len(weighed.folded)))
        low, middle, high = (tuple(x.tolist()) for x in np.percentile(weighed.folded, [10, 50, 90], axis=1))
        lines.append(Line(name="weights, middle 80 % of heads", x=layers, y=middle, low=low, high=high))
    if like is not None:
        lines.append(line_of("scores on tokens", range(1, like.shape[1] + 1), like.mean(2), seed))
    if lines:
        ends = (1.0, float(len(lines[0].x)))
        lines.append(Line(name="random weights", x=ends, y=(0.0, 0.0), null=True))
        found.append(Chart(title="How symmetric heads are", x="layer", y="symmetry", lines=tuple(lines)))
    if weighed is not None and weighed.turned is not None:
        low, middle, high = (tuple(x.tolist()) for x in np.percentile(weighed.turned, [10, 50, 90], axis=(0, 1)))
        line = Line(name="middle 80 % of heads", x=tuple(map(float, OFFSETS)), y=middle, low=low, high=high)
        found.append(Chart(title="Symmetry of pairs that are apart", x="offset", y="symmetry", lines=(line,)))
    return found


def _answer(found: dict[str, Estimate], width: int) -> str:
    told = []
    if middle := found.get("symmetry of a head, median"):
        more = found["heads more symmetric than chance"]
        told.append(
            f"The median head has symmetry {middle.value:.2g} (1: queries and keys could be one; by chance "
            f"{1 / width:.1g}); {more.value:.0f} {more.unit} heads are more symmetric than chance."
        )
    costs = {
        "keys in the place of queries": "Putting keys in the place of queries",
        "queries turned at random": "turning queries at random",
        "scale left out": "leaving the scale out",
    }
    measured = {words: found.get(f"rise, {name}") for name, words in costs.items()}
    harm = [f"{words} costs {said(rise)}" for words, rise in measured.items() if rise is not None]
    return " ".join([*told, "; ".join(harm) + "." if harm else ""]).strip()
