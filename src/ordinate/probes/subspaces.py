"""Whether position and content keep out of each other's way, and what of either decides where heads look."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.finding import Chart, Estimate, Finding, Line, Picture, Table
from ordinate.measures.codes import Code
from ordinate.measures.harm import gauge
from ordinate.measures.intervening import Intervened
from ordinate.measures.presenting import Passes, Sample, beginnings, changed, looked_at
from ordinate.measures.scaling import scale_of
from ordinate.measures.sharing import Inside, inside, selectivity, tables_and_code
from ordinate.measures.splitting import FIVE, TERMS, Lacking, Means, means_of, split
from ordinate.measures.telling import estimate_of, lacking, line_of, panel_of, percent, said
from ordinate.measures.whereabouts import kept, places_of
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Subject, Unfit

ENERGY, LENGTH, SHOWN, SIDE = 0.9, 96, 12, 32
KINDS = (*TERMS, "two of them together")
METHOD = (
    "{whole}. Directions: of tokens those that hold {energy:.0%} of what differs between {noun} at the same place; "
    "of position the mean of all {noun} but one at each place, multiplied with that one. Scores, of {few}: queries "
    "and keys are what stands at each place, taken of other {noun}, and the rest; the four products and what is "
    "added to them sum to the scores exactly. Shares: of what scores of a row differ by, in fives of {noun}: each "
    "term times itself, made by two others and by two others again; what two terms make together stands by itself. "
    "Each term is left out of all heads, and the {what} compared. Reading: how much of the squares of matrices is in "
    "the directions of position, over their share of all. The code that is added: a place can be singled out if a "
    "plane separates it from all others; ridge regression, fitted to one half of the places. Intervals: 95 %, "
    "bootstrap over {noun}, or fives of them."
)
NULL = (
    "Position in random directions: the directions of tokens hold their share of all directions of it, which the "
    "interval of a turned position surrounds. A stream without position: no share of the scores but token-token. A "
    "random table: R^2 of 0 or below."
)


@dataclass(frozen=True)
class Found:
    """What was found; what could not be measured is None or empty.

    Args:
        layers: how much of position lies in the directions of tokens, as it enters each layer.
        shares: of each term in the scores.
        means: what of queries and keys is position.
        rises: what it costs to leave each term out.
        tables: the overlap of the two tables that are added.
        read: what matrices of the first layer read of position.
        code: what the code that is added allows.
    """

    layers: list[Inside]
    shares: Float[Tensor, "fives layers h terms"] | None
    means: Means | None
    rises: list[Estimate]
    tables: list[tuple[float | int, ...]]
    read: dict[str, float]
    code: Code | None


class Subspaces(Probe):
    """Whether position and content keep out of each other's way, and what of either decides where heads look."""

    title = "Do position and content get in each other's way? Why add and not concatenate, why not a scalar?"

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        whole = looked_at(facts, material, Passes(headless=1))
        few = changed(facts, beginnings(material, LENGTH), Passes(whole=5, headless=2))
        if few.texts < 3 * FIVE:
            raise Unfit(lacking(few, f"what is common to texts needs {3 * FIVE} of them"))
        streams = kept(subject, whole, places_of(whole, facts))
        layers = [inside(x, ENERGY, seed) for x in streams]
        tell(0.3)
        shares, means, rises = _apart(subject, few, seed, reasons, tell)
        tell(0.8)
        tables, code = tables_and_code(subject, whole.length, seed, reasons)
        read = selectivity(subject, streams[0], ENERGY, reasons) if layers[0].share is not None else {}
        found = Found(layers, shares, means, rises, tables, read, code)
        estimates = _estimates(found, seed)
        words = {"whole": whole.size, "few": few.size, "noun": whole.noun, "energy": ENERGY}
        return Finding(
            question="subspaces",
            title=self.title,
            answer=_answer(found, {one.name: one for one in estimates}),
            estimates=tuple(estimates),
            tables=tuple(_listed(found)),
            charts=tuple(_charts(found, seed)),
            pictures=_pictures(found, facts.causal),
            method=METHOD.format(**words, what=gauge(subject, few, seed).name),
            null=NULL,
            caveats=(
                "A mean over few texts is not free of their tokens. Shares are corrected for it, pictures are not.",
                *whole.left_out,
                *few.left_out,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _apart(
    subject: Subject, short: Sample, seed: int, reasons: dict[str, str], tell: Tell
) -> tuple[Float[Tensor, "fives layers h terms"] | None, Means | None, list[Estimate]]:
    """The scores taken apart, and what it costs to leave each term out."""
    try:
        scale = scale_of(subject, short)
        shares, means = split(subject, short, scale), means_of(subject, short)
    except Unfit as reason:
        reasons["terms of the scores"] = str(reason)
        return None, None, []
    base, found = gauge(subject, short, seed), []
    usual = base.measure()
    for term, name in enumerate(TERMS):
        base.subject = Intervened(subject, Lacking(means, term, scale))
        found.append(estimate_of(f"rise, {name} left out", base.measure() - usual, seed, base.unit))
        tell(0.5 + 0.3 * term / len(TERMS))
    return shares, means, found


def _estimates(found: Found, seed: int) -> list[Estimate]:
    told = []
    for name, own in (("as it enters", found.layers[0]), ("in the end", found.layers[-1])):
        if own.share is not None:
            plain = estimate_of(f"position in the directions of tokens, {name}", own.share, seed, "share", own.chance)
            told.append(plain.model_copy(update={"null_low": own.low, "null_high": own.high}))
    for energy, _, _, value, chance, low, high, _ in found.tables[:1]:
        name = f"overlap of the two tables, {energy:.0%} of each"
        told.append(Estimate(name=name, value=value, null=chance, null_low=low, null_high=high, unit="share"))
    if found.shares is not None:
        means = found.shares.mean((1, 2)).numpy()
        for place, name in enumerate(KINDS):
            null = None if place == 0 else 0.0
            told.append(estimate_of(f"share of the scores: {name}", means[:, place], seed, "of variance", null))
    told += found.rises
    told += [
        Estimate(name=f"{name} read position, layer 1", value=value, null=1.0, unit="times their share")
        for name, value in found.read.items()
    ]
    if found.code is not None:
        single, own = found.code.single, found.code.own
        told += [
            Estimate(name="places that a head can single out", value=float((single > 0).mean()), unit="share"),
            Estimate(name="the same of a number from 0 to 1", value=2 / len(single), unit="share"),
        ]
        for name, kind in (
            ("the place", "ramp"),
            ("sawtooths", "saws"),
            ("sines", "sines"),
            ("binary digits", "bits"),
        ):
            # of several wavelengths, the mean
            values, null = (getattr(of, kind).reshape(len(own.ramp), -1).mean(1) for of in (own, found.code.random))
            told.append(estimate_of(f"R^2 of {name} read from the code", values, seed, "", float(null.mean())))
    return told


def _listed(found: Found) -> list[Table]:
    tables = []
    if found.tables:
        columns = ("of each", "directions of positions", "of tokens", "overlap", "by chance", "from", "to",
                   "largest cosine")  # fmt: skip
        tables.append(Table(title="The two tables that are added", columns=columns, rows=tuple(found.tables)))
    if found.shares is not None:
        means = found.shares.mean(0)
        rows = [
            (layer + 1, head + 1, *(float(x) for x in means[layer, head]))
            for layer, head in np.ndindex(*means.shape[:2])
        ]
        title = "What of the scores of each head is due to what"
        tables.append(Table(title=title, columns=("layer", "head", *KINDS), rows=tuple(rows)))
    return tables


def _charts(found: Found, seed: int) -> list[Chart]:
    shares = {layer: own.share for layer, own in enumerate(found.layers) if own.share is not None}
    across, charts = list(shares), []
    if len(across) > 1:
        values, places = np.stack(list(shares.values()), 1), tuple(float(layer) for layer in across)
        low, middle, high = (tuple(getattr(found.layers[layer], end) for layer in across)
                             for end in ("low", "chance", "high"))  # fmt: skip
        chance = Line(name="by chance", x=places, y=middle, low=low, high=high, null=True)
        lines = (line_of("position", across, values, seed), chance)
        caption = f"The directions that hold {ENERGY:.0%} of what tokens differ by. 0: as the tokens enter."
        title = "How much of position lies in the directions of tokens"
        charts.append(Chart(title=title, x="after layer", y="share", lines=lines, caption=caption))
    if found.shares is not None:
        means = found.shares.mean(2).numpy()
        layers = range(1, means.shape[1] + 1)
        lines = tuple(line_of(name, layers, means[:, :, place], seed) for place, name in enumerate(KINDS))
        title = "What the scores of a row differ by"
        charts.append(Chart(title=title, x="layer", y="share of variance", lines=lines))
    if found.code is not None:
        code, waves = found.code.own, found.code.own.wavelengths
        kinds = (("sawtooth", code.saws, False), ("sine", code.sines, False), ("binary digit", code.bits, False),
                 ("sawtooth, random table", found.code.random.saws, True))  # fmt: skip
        lines = tuple(line_of(name, waves, values, seed, null) for name, values, null in kinds)
        title = "What is read from the code linearly"
        charts.append(Chart(title=title, x="wavelength", y="R^2", lines=lines, across="log"))
    return charts


def _pictures(found: Found, causal: bool) -> tuple[Picture, ...]:
    """What places alone make of each other, in the heads in which that counts most."""
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
        name, note = f"layer {layer + 1}, head {head + 1}", f"{percent(float(shares[layer, head]))} of its scores"
        panels.append(panel_of(name, (own / largest).numpy(), SIDE, note))
    title = "What places make of each other, each row less its mean, in the heads where it counts most"
    return (Picture(title=title, x="key", y="query", panels=tuple(panels), middle=0.0),)


def _answer(found: Found, estimates: dict[str, Estimate]) -> str:
    told = []
    entering = estimates.get("position in the directions of tokens, as it enters")
    if entering is None:
        told.append("No position shows in what enters the first layer.")
    else:
        low, high, value = entering.null_low or 0.0, entering.null_high or 1.0, entering.value
        how = "less than" if value < low else "more than" if value > high else "as much as"
        share = entering.model_copy(update={"unit": "of position"})
        told.append(
            f"{said(share)} lies in the directions that hold {100 * ENERGY:.0f} % of the tokens: {how} chance puts "
            f"there ({low:.2g} to {high:.2g})."
        )
    if found.shares is not None:
        parts = [f"{name} {percent(estimates[f'share of the scores: {name}'].value)}" for name in KINDS]
        told.append(f"What scores of a row differ by: {', '.join(parts)}.")
    return " ".join(told)
