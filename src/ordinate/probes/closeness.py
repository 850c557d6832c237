"""Whether some positions are too close to be told apart, and whether that matters."""

import time

import numpy as np
from numpy import ndarray
from torch import Tensor

from ordinate.finding import Chart, Estimate, Finding, Line, Picture
from ordinate.measures.exchange import Exchange, exchanged
from ordinate.measures.harm import Gauge, gauge
from ordinate.measures.nearness import (
    by_offset,
    chance_of_closest,
    chance_of_neighbours,
    closest,
    confusability,
    distances,
    neighbours,
    scores_of_places,
)
from ordinate.measures.presenting import Passes, Sample, changed
from ordinate.measures.telling import costs, estimate_of, line_of, panel_of, said
from ordinate.ops.permutation import mantel
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Facts, Subject, Unfit

MOST = 256
METHOD = (
    "Distances between the rows of what is added to tokens ({length} positions). How alike two places look about: "
    "the same token everywhere, so that the first layer's weights tell places alone; the Jensen-Shannon divergence "
    "of the weights of each two queries, averaged over heads; its correlation with distance by Mantel's test, 999 "
    "permutations. Harm: on {texts} {noun} of {tokens} tokens the positions of pairs so many places apart are "
    "exchanged, and the {what} is compared with that of the same {noun}; in the control the same tokens are moved as "
    "far in random directions. Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "Nearest neighbours: the same rows in random order. Closest two: a table of normal random numbers of the same "
    "shape. Mantel: places named anew. Exchange: the control, which moves tokens as far but not to another position."
)


class Closeness(Probe):
    """Whether some positions are too close to be told apart, and what comes of it."""

    title = "Are some positions too close to each other?"

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        if material.ids is None:
            raise Unfit("pictures have rows and columns of patches; this question is asked of texts")
        length = min(MOST, facts.max_length or MOST, material.ids.shape[1])
        table, apart = _table(subject, length, reasons)
        # seven distances, each beside a control where something is added
        chosen = changed(facts, material, Passes(8 if table is None else 15))
        tell(0.1)
        looks = _looks(subject, chosen, min(length, 128), reasons)
        tell(0.3)
        scale = gauge(subject, chosen, seed)
        harm = exchanged(scale, table, seed, reasons, lambda done: tell(0.3 + 0.7 * done))
        if apart is None and looks is None and harm is None:
            raise Unfit("; ".join(reasons.values()))
        estimates = [*_of_table(subject, table, apart, chosen, seed), *_of_looks(apart, looks, seed)]
        estimates += _of_harm(harm, scale, seed)
        sizes = {"length": length, "texts": chosen.texts, "tokens": chosen.length, "noun": chosen.noun}
        return Finding(
            question="closeness",
            title=self.title,
            answer=_answer(estimates, facts),
            estimates=tuple(estimates),
            charts=(*_curve(apart), *_cost(harm, scale, seed)),
            pictures=tuple(_pictures(apart, looks)),
            method=METHOD.format(what=scale.name, **sizes),
            null=NULL,
            caveats=(*chosen.left_out, *(f"Not measured, {what}: {reason}." for what, reason in reasons.items())),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _table(subject: Subject, length: int, reasons: dict[str, str]) -> tuple[Tensor | None, ndarray | None]:
    try:
        table = subject.position_table(length).detach().cpu().double()
    except Unfit as reason:
        reasons["distances of the code"] = str(reason)
        return None, None
    apart = distances(table)
    if not apart.any():
        reasons["distances of the code"] = "what is added to tokens is the same at all positions"
        return None, None
    return table, apart


def _looks(subject: Subject, chosen: Sample, length: int, reasons: dict[str, str]) -> ndarray | None:
    try:
        ids = chosen.given(slice(0, 4)).ids
        return None if ids is None else confusability(scores_of_places(subject, ids[:, -1], length))
    except Unfit as reason:
        reasons["how places look about"] = str(reason)
        return None


def _of_table(
    subject: Subject, table: Tensor | None, apart: ndarray | None, chosen: Sample, seed: int
) -> list[Estimate]:
    if table is None or apart is None:
        return []
    share, (smallest, offset) = float((neighbours(apart) == 1).mean()), closest(apart)
    mean, low, high = chance_of_neighbours(apart, seed)
    beside, beside_low, beside_high = chance_of_closest((len(table), table.shape[1]), seed)
    given = chosen.given(slice(0, chosen.texts)).ids
    tokens = subject.token_table()[given.unique() if given is not None else slice(None)].cpu().double()
    level = [(x - x.mean(1, keepdim=True)).norm(dim=1).median() for x in (table, tokens)]
    size = float(table.norm(dim=1).median() / tokens.norm(dim=1).median())
    return [
        Estimate(name="closest two positions, beside the median distance", value=smallest, null=beside,
                 null_low=beside_low, null_high=beside_high),
        Estimate(name="places between the closest two", value=float(offset), unit="tokens"),
        Estimate(name="positions whose nearest is next to them", value=share, null=mean, null_low=low, null_high=high,
                 unit="share"),
        Estimate(name="size of positions beside tokens", value=size, unit="ratio of medians"),
        Estimate(name="the same after their means are taken off", value=float(level[0] / level[1]),
                 unit="ratio of medians"),
    ]  # fmt: skip


def _of_looks(apart: ndarray | None, looks: ndarray | None, seed: int) -> list[Estimate]:
    if looks is None:
        return []
    count = len(looks)
    offsets = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    near = float(np.diagonal(looks, 1).mean())
    found = [Estimate(name="how differently neighbours look about", value=near, null=0.0, unit="bits")]
    flat = looks.max() < 1e-9
    for name, other in (("distance of the code", apart), ("places between", offsets)):
        if other is not None and not flat:
            test = mantel(other[:count, :count], looks, seed)
            ends = {"null_low": test.low, "null_high": test.high}
            name = f"correlation of looking about with {name}, p {test.p:.3f}"
            found.append(Estimate(name=name, value=test.value, null=0.0, **ends))
    return found


def _of_harm(harm: Exchange | None, scale: Gauge, seed: int) -> list[Estimate]:
    if harm is None:
        return []
    first, last = harm.swapped[:, 0], harm.swapped[:, -1]
    found = [estimate_of("rise, neighbours exchanged", first, seed, scale.unit),
             estimate_of(f"rise, positions {harm.offsets[-1]} apart exchanged", last, seed, scale.unit)]  # fmt: skip
    if harm.moved is not None and len(harm.lengths) > 1:
        steps = np.array(harm.lengths) - np.mean(harm.lengths)
        weights = steps / max(float((steps**2).sum()), 1e-30)
        own, control = harm.swapped @ weights, harm.moved @ weights
        found.append(estimate_of("rise per unit of distance, beyond the control", own - control, seed, scale.unit))
        found.append(estimate_of("rise, neighbours exchanged, beyond the control", first - harm.moved[:, 0], seed,
                                 scale.unit))  # fmt: skip
    return found


def _curve(apart: ndarray | None) -> list[Chart]:
    if apart is None:
        return []
    middle, low, high = (tuple(values) for values in by_offset(apart))
    across = tuple(float(offset) for offset in range(1, len(apart)))
    chance = float(apart[np.triu_indices(len(apart), 1)].mean())
    lines = (
        Line(name="positions", x=across, y=middle, low=low, high=high),
        Line(name="rows in random order", x=(across[0], across[-1]), y=(chance, chance), null=True),
    )
    caption = "Mean distance of two positions; the band holds 95 % of the pairs."
    return [Chart(title="Distance of two positions", x="places between", y="distance", lines=lines, caption=caption)]


def _cost(harm: Exchange | None, scale: Gauge, seed: int) -> list[Chart]:
    if harm is None:
        return []
    lines = [line_of("positions exchanged", harm.offsets, harm.swapped, seed)]
    if harm.moved is not None:
        lines.append(line_of("moved as far at random", harm.offsets, harm.moved, seed, null=True))
    words = {"title": "What it costs to exchange positions", "x": "places between", "y": f"rise [{scale.unit}]"}
    return [Chart(**words, lines=tuple(lines), across="log", caption="Some pairs of each text exchanged at once.")]


def _pictures(apart: ndarray | None, looks: ndarray | None) -> list[Picture]:
    found = [("Distance of positions in the code", apart), ("How differently two places look about [bits]", looks)]
    return [
        Picture(title=title, x="position", y="position", panels=(panel_of("all positions", matrix),))
        for title, matrix in found
        if matrix is not None
    ]


def _answer(estimates: list[Estimate], facts: Facts) -> str:
    found, told = {one.name: one for one in estimates}, []
    nearest = found.get("closest two positions, beside the median distance")
    if nearest is not None:
        apart = found["places between the closest two"].value
        kind = (
            "closer than chance makes them" if nearest.value < (nearest.null_low or 0) else "no closer than by chance"
        )
        told.append(
            f"The closest two positions stand {apart:.0f} apart, at {nearest.value:.2g} of the median distance: "
            f"{kind}; {100 * found['positions whose nearest is next to them'].value:.0f} % of positions are nearest "
            "to a neighbour."
        )
    else:
        told.append(f"Nothing is added to tokens: {facts.entering}.")
    swapped, beyond = (found.get(f"rise, neighbours exchanged{end}") for end in ("", ", beyond the control"))
    if swapped is not None and swapped.low is not None and swapped.high is not None:
        if swapped.low <= 0 <= swapped.high:
            told.append(f"Exchanging neighbouring positions makes no measurable difference: {said(swapped)}.")
        else:
            told.append(f"{costs({'Exchanging neighbouring positions': swapped})}.")
    if beyond is not None and beyond.low is not None and beyond.high is not None:
        sure = "more than" if beyond.low > 0 else "less than" if beyond.high < 0 else "no more and no less than"
        told.append(f"That is {sure} moving the same tokens as far at random.")
    return " ".join(told)
