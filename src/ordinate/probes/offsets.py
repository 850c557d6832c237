"""Which heads look a fixed number of places back, or at the first token, and whether trivial ones would do."""

import time

import numpy as np
import torch

from ordinate.finding import Chart, Estimate, Finding, Line, Picture, Table
from ordinate.measures.detecting import STRAIGHT, Found, detected
from ordinate.measures.gaze import Even, Gaze, Maps, looked, looked_and_mapped
from ordinate.measures.harm import gauge
from ordinate.measures.intervening import Intervened
from ordinate.measures.presenting import Passes, Sample, changed, looked_at, shuffled
from ordinate.measures.telling import costs, estimate_of, panel_of
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Subject, Unfit

SHOWN, SIDE = 12, 32
METHOD = (
    "{whole}. Of each head, how much of its weight is so many places back, {first} to {last}, of what is not on the "
    "first token; the queries are those that have all of these offsets. A head looks at an offset if {half:.0%} of "
    "that weight is there and the largest of its offsets is larger than the largest is when offsets are named anew "
    "in each text, 999 times; adjusted for all heads by Benjamini and Hochberg. It looks at the first token if "
    "{half:.0%} of all its weight is there. It looks the less the farther if the logarithm of its weight falls with "
    "distance, straight (a correlation of {straight:g}), to less than half, and more so than with offsets named "
    "anew. Alike: the share of what the scores of a row differ by that is the same in all texts, less what chance "
    "gives. Harm: the heads found look at all alike, or exactly where they were found to look, as a head in closed "
    "form does; the {what} of {few} is compared with that of the same untouched, and with as many other heads "
    "looking at all alike. Shuffled: {few}, in random order. Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "A head that looks where content tells it has no offset in common in all texts; one that looks at all alike has "
    "{even:.3g} at each offset, and {sink:.3g} on the first token."
)


class Offsets(Probe):
    """Which heads look a fixed number of places back, or at the first token, and whether trivial ones would do.

    Args:
        mass: how much of a head's weight must be on one place for it to count.
    """

    title = "Are there heads for “two to the left”, “the first token”, “nearby”?"

    def __init__(self, *, mass: float = 0.5) -> None:
        self.mass = mass

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        whole = looked_at(facts, material, Passes(headless=1))
        few = changed(facts, material, Passes(whole=4, headless=1))
        if whole.length < 12:
            raise Unfit(f"offsets need 12 places or more; there are {whole.length}; give longer texts")
        seen, maps = looked_and_mapped(subject, whole)
        tell(0.3)
        again = looked(subject, few, shuffled(few, few.length, torch.Generator().manual_seed(seed)))
        tell(0.4)
        found = detected(seen, self.mass, seed)
        tell(0.6)
        scale = gauge(subject, few, seed)
        estimates = [*_of_heads(found, seen, again, maps, seed), *_of_harm(subject, few, found, seed, reasons)]
        words = {"whole": whole.size, "few": few.size, "noun": whole.noun, "half": self.mass}
        words |= {"straight": STRAIGHT, "first": seen.offsets[0], "last": seen.offsets[-1], "what": scale.name}
        return Finding(
            question="offsets",
            title=self.title,
            answer=_answer(found, {one.name: one for one in estimates}),
            estimates=tuple(estimates),
            tables=(_table(found, seen, again, maps),),
            charts=(_profiles(found, seen),),
            pictures=(_picture(found, maps),),
            method=METHOD.format(**words),
            null=NULL.format(even=seen.even, sink=seen.even_sink),
            caveats=(
                "The heads found are changed all at once; one by one others might stand in for them.",
                *whole.left_out,
                *few.left_out,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _of_heads(found: Found, seen: Gaze, again: Gaze, maps: Maps, seed: int) -> list[Estimate]:
    heads = found.mass.size
    layer, head = (int(x) for x in np.unravel_index(found.mass.argmax(), found.mass.shape))
    place = seen.offsets.index(int(found.offset[layer, head]))
    name = f"layer {layer + 1}, head {head + 1}, {_where(found.offset[layer, head])}"
    ends, near = {"null": seen.even, "unit": "of its weight"}, float(len(found.near))
    nearest = seen.distance.mean(0)
    own = np.corrcoef(seen.mass.mean(0).ravel(), again.mass.mean(0).ravel())[0, 1] if seen.mass.std() > 0 else 1.0
    return [
        Estimate(name="heads that look at one offset", value=float(len(found.back)), null=0.0, unit=f"of {heads}"),
        Estimate(name="heads that look at the first token", value=float(len(found.first)), unit=f"of {heads}"),
        Estimate(name="heads that look the less the farther", value=near, null=0.0, unit=f"of {heads}"),
        estimate_of(f"most on one offset: {name}", seen.mass[:, layer, head, place], seed, **ends),
        estimate_of(f"the same, tokens shuffled: {name}", again.mass[:, layer, head, place], seed, **ends),
        Estimate(name="likeness of all profiles with those of shuffled tokens", value=float(own), unit="correlation"),
        Estimate(name="scores alike in all texts, median head", value=float(maps.alike.median()), null=0.0,
                 unit="of their variance"),
        Estimate(name="how far the nearest-looking head looks", value=float(nearest.min()), unit="tokens"),
        Estimate(name="how far the farthest-looking head looks", value=float(nearest.max()), unit="tokens"),
    ]  # fmt: skip


def _of_harm(subject: Subject, chosen: Sample, found: Found, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    """What it costs when the heads found look at all alike, and when heads in closed form stand in their place."""
    heads = found.heads
    if not heads:
        return []
    facts, base = subject.facts, gauge(subject, chosen, seed)
    usual = base.measure()
    others = [(layer, head) for layer in range(facts.layers) for head in range(facts.heads)]
    others = [others[place] for place in np.random.default_rng(seed).permutation(len(others))]
    control = [place for place in others if place not in heads][: len(heads)]
    arms = {
        "the heads found look at all alike": Even(facts, heads),
        "heads in closed form in their place": Even(facts, heads, found.targets),
    }
    if control:
        arms[f"{len(control)} other heads look at all alike"] = Even(facts, control)
    estimates = []
    for name, watch in arms.items():
        base.subject = Intervened(subject, watch)
        try:
            estimates.append(estimate_of(f"rise, {name}", base.measure() - usual, seed, base.unit))
        except Unfit as reason:
            reasons[name] = str(reason)
    return estimates


def _where(offset: float) -> str:
    if offset == 0:
        return "itself"
    return f"{abs(offset):.0f} {'back' if offset > 0 else 'ahead'}"


def _table(found: Found, seen: Gaze, again: Gaze, maps: Maps) -> Table:
    rows = []
    for layer, head in _first_heads(found, len(found.mass.ravel())):
        place = seen.offsets.index(int(found.offset[layer, head]))
        own = (found.mass[layer, head], again.mass[:, layer, head, place].mean(), found.q[layer, head])
        rest = (
            found.slope[layer, head],
            found.sink[layer, head],
            seen.distance[:, layer, head].mean(),
            maps.alike[layer, head],
        )
        where = _where(found.offset[layer, head])
        rows.append((layer + 1, head + 1, where, *(float(x) for x in (*own, *rest))))
    columns = ("layer", "head", "looks most", "of its weight", "tokens shuffled", "adjusted p", "fall with distance",
               "on the first token", "mean distance", "scores alike in all texts")  # fmt: skip
    caption = "The weight on the first token is left out of what is shared between offsets."
    return Table(title="Where each head looks", columns=columns, rows=tuple(rows), caption=caption)


def _first_heads(found: Found, most: int) -> list[tuple[int, int]]:
    """Heads, those that look at one place first."""
    order = np.argsort(-np.maximum(found.mass, found.sink).ravel(), kind="stable")[:most]
    return [(int(place) // found.mass.shape[1], int(place) % found.mass.shape[1]) for place in order]


def _profiles(found: Found, seen: Gaze) -> Chart:
    across, means = tuple(float(offset) for offset in seen.offsets), seen.mass.mean(0)
    heads = sorted(np.ndindex(*found.mass.shape), key=lambda place: -found.mass[place])[:5]
    lines = [
        Line(name=f"layer {layer + 1}, head {head + 1}", x=across, y=tuple(means[layer, head].tolist()))
        for layer, head in heads
    ]
    even = Line(name="all alike", x=(across[0], across[-1]), y=(seen.even, seen.even), null=True)
    title = "How much weight is so many places back, in the heads that are most sure of it"
    return Chart(title=title, x="places back", y="of the weight", lines=(*lines, even))


def _picture(found: Found, maps: Maps) -> Picture:
    means = (maps.total / max(1, maps.texts)).numpy()
    panels = [
        panel_of(
            f"layer {layer + 1}, head {head + 1}",
            means[layer, head],
            SIDE,
            f"most {_where(found.offset[layer, head])}",
        )
        for layer, head in _first_heads(found, SHOWN)
    ]
    title = "Weights, the mean of all texts, of the heads that look most at one place"
    return Picture(title=title, x="key", y="query", panels=tuple(panels))


def _answer(found: Found, estimates: dict[str, Estimate]) -> str:
    count = found.mass.size
    told = []
    if found.back:
        kinds, counts = np.unique([found.offset[place] for place in found.back], return_counts=True)
        listed = ", ".join(f"{number} at {_where(kind)}" for kind, number in zip(kinds, counts, strict=True))
        told.append(f"Of {count} heads {len(found.back)} look at one offset ({listed}).")
    else:
        told.append(f"None of {count} heads looks at one offset.")
    told.append(f"{len(found.first)} look at the first token, {len(found.near)} the less the farther.")
    closed, even = (
        estimates.get(f"rise, {name}")
        for name in ("heads in closed form in their place", "the heads found look at all alike")
    )
    if closed is not None and even is not None:
        done = {"Putting heads in closed form in their place": closed, "letting them look at all alike": even}
        told.append(f"{costs(done)}.")
    return " ".join(told)
