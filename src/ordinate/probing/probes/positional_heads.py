"""Positional heads: fixed offset, first token, or decay with distance; and their closed-form replacements."""

import time

import numpy as np
import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.finding import Chart, Estimate, Finding, Grade, HeatmapGrid, Line, Table
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures.attention_by_offset import (
    AttentionMaps,
    AttentionProfile,
    attention_profile,
    attention_profile_and_maps,
)
from ordinate.probing.measures.formatting import describe_effects, heatmap_of, mean_estimate, sample_caveats
from ordinate.probing.measures.head_detection import MIN_EXPLAINED, MIN_TEXTS, DetectedHeads, Places, detect_heads
from ordinate.probing.measures.measured import Measured
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    random_permutation,
)
from ordinate.probing.measures.synthetic_patterns import ReplacePattern

SHOWN, SIDE = 12, 32
METHOD = (
    "{whole}. For each head, the attention mass at each offset from {first} to {last} except 0, as a share of the "
    "mass not on the first token, over the queries that have a key there; farther offsets have fewer than eight "
    "queries and are not tested. A head attends to a fixed offset if {half:.0%} of that mass is at one offset, and "
    "more than under uniform attention to all other keys; weakly if {quarter:.0%} is. It attends to the first token "
    "if {half:.0%} of its total mass is there. Its attention decays with distance if its mean distance is smaller "
    "than under uniform attention to the keys that its layer sees, in a sliding window those in it, and the "
    "exponential decay with that mean distance explains {explained:.0%} or "
    "more of the divergence of its profile from uniform attention. Tests: sign flips over {noun} (999), the largest "
    "of all statistics against the largest under flips, which corrects over offsets, heads and layers (Westfall and "
    "Young). The largest mass at an offset: head and offset are chosen on every other of the {noun}, and measured on "
    "the rest. Common score variance: the share of the within-row variance of scores that is common to all texts, "
    "bias-corrected. Ablation: the detected heads are replaced by uniform attention, or by the closed-form pattern "
    "that was detected; the {what} of {few} is compared with that of the unchanged model, and with replacing as many "
    "other heads by uniform attention. Shuffled: {few}, in random order. Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "Attention by content alone: the same expectation at every offset but 0, as under uniform attention to the keys "
    "that a query sees, which has mass {near:.3g} at the nearest offset, {far:.3g} at the farthest and {sink:.3g} on "
    "the first token{view}; the mean distance is that of uniform attention, a decay of 0."
)


class PositionalHeads(Probe):
    """Detect positional heads and replace them by closed-form attention patterns.

    Args:
        mass: least attention mass on one offset, or on the first token, for a head to count; between 0 and 1.

    Raises:
        ValueError: the mass is no share between 0 and 1.
    """

    title = "Are there heads for “two to the left”, “the first token”, “nearby”?"

    def __init__(self, *, mass: float = 0.5) -> None:
        need_positive("mass", mass)
        must = "mass is the least share of a head's attention and must be below 1"
        need(mass < 1, must, f"got {mass:g}", "give one such as 0.5")
        self.mass = mass

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts = time.perf_counter(), model.info
        whole = observation_sample(facts, data, ForwardBudget(without_logits=1))
        few = intervention_sample(facts, data, ForwardBudget(with_logits=4, without_logits=1))
        if whole.length < 12:
            raise NotApplicable(f"offsets need 12 positions or more; got {whole.length}; pass longer texts")
        seen, maps = attention_profile_and_maps(model, whole)
        on_progress(fraction(0.3))
        order = random_permutation(few, few.length, torch.Generator().manual_seed(seed))
        again = attention_profile(model, few, order)
        on_progress(fraction(0.4))
        found = detect_heads(seen, self.mass, seed)
        on_progress(fraction(0.6))
        replaced = _replacement_estimates(model, few, found, seed)
        estimates = _head_estimates(found, seen, again, maps, seed) + replaced.value
        words = {"half": self.mass, "quarter": self.mass / 2, "what": metric_for(model, few, seed).name}
        words |= {"whole": whole.description, "few": few.description, "noun": whole.noun}
        return Finding(
            question="positional_heads",
            title=self.title,
            grade=_grade(found, again, self.mass, whole.count),
            effect=_effect(found, seen, estimates, seed),
            answer=_answer(found, seen, again, self.mass, {one.name: one for one in estimates}),
            estimates=tuple(estimates),
            tables=(_table(found, seen, again, maps),),
            charts=(_profile_chart(found, seen),),
            pictures=(_pattern_heatmaps(found, maps),),
            method=METHOD.format(**words, explained=MIN_EXPLAINED, first=seen.offsets[0], last=seen.offsets[-1]),
            null=_null(seen),
            caveats=(
                "All detected heads are replaced at once; a head replaced alone may be compensated by others.",
                *sample_caveats([whole, few], replaced.missing),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _null(seen: AttentionProfile) -> str:
    order = np.abs(seen.offsets).argsort()
    widest = _widest(seen)
    near, far = (float(seen.uniform_mass[widest, order[end]]) for end in (0, -1))
    view = (
        "" if len(set(map(id, seen.pairs))) == 1 else f" in layer {widest + 1}, without a window or with the widest"
    )
    return NULL.format(near=near, far=far, sink=seen.uniform_first_token_mass[widest], view=view)


def _widest(seen: AttentionProfile) -> int:
    """The first layer whose queries see the most keys: other layers may have sliding windows."""
    return int(np.argmax([float(own.keys.sum()) for own in seen.pairs]))


def _place(found: DetectedHeads, seen: AttentionProfile, layer: int, head: int) -> int | None:
    """Index of a head's offset in another profile; None if that is of shorter texts."""
    offset = int(found.offset[layer, head])
    return seen.offsets.index(offset) if offset in seen.offsets else None


def _persistent(found: DetectedHeads, again: AttentionProfile, mass: float) -> Places:
    """The heads that do the same when tokens are shuffled: their content is random then."""
    kept = []
    for place in found.heads:
        at = _place(found, again, *place)
        if place in found.offset_heads:
            same = at is not None and again.mass[:, *place, at].mean() >= mass
        elif place in found.first_token_heads:
            same = again.first_token_mass[:, *place].mean() >= mass
        else:
            same = again.distance[:, *place].mean() < again.uniform_distance[:, *place].mean()
        kept += [place] if same else []
    return kept


def _grade(found: DetectedHeads, again: AttentionProfile, mass: float, texts: int) -> Grade:
    if texts < MIN_TEXTS:
        return "cannot be told"
    if _persistent(found, again, mass):
        return "yes"
    return "weakly" if found.heads or found.weak_offset_heads else "no"


def _effect(found: DetectedHeads, seen: AttentionProfile, estimates: list[Estimate], seed: int) -> Estimate:
    """The number that the grade rests on: of the clearest head of the first kind that there is."""
    if found.offset_heads or not found.heads:
        return next(one for one in estimates if one.name.startswith("largest attention mass"))
    if found.decaying_heads:
        return next(one for one in estimates if one.name.startswith("steepest decay"))
    layer, head = max(found.first_token_heads, key=lambda place: found.first_token_mass[place])
    name = f"attention mass on the first token: layer {layer + 1}, head {head + 1}"
    values = seen.first_token_mass[:, layer, head]
    null = float(seen.uniform_first_token_mass[layer])
    return mean_estimate(name, values, seed, "of its attention mass", null)


def _head_estimates(
    found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, maps: AttentionMaps, seed: int
) -> list[Estimate]:
    heads = found.mass.size
    counts = {
        "heads that attend to a fixed offset": found.offset_heads,
        "heads that attend to the first token": found.first_token_heads,
        "heads whose attention decays with distance": found.decaying_heads,
        "heads that attend to a fixed offset weakly": found.weak_offset_heads,
        "heads that attend to their own token": found.own_token_heads,
    }
    nearest = seen.distance.mean(0)
    shared = [offset for offset in seen.offsets if offset in again.offsets]
    one, other = (own.mass.mean(0)[..., [own.offsets.index(x) for x in shared]].ravel() for own in (seen, again))
    alike = np.corrcoef(one, other)[0, 1] if one.std() > 0 and other.std() > 0 else 1.0
    return [
        *(Estimate(name=name, value=float(len(own)), null=0.0, unit=f"of {heads}") for name, own in counts.items()),
        *_clearest(found, seen, again, seed),
        Estimate(name="correlation of attention profiles with those on shuffled tokens", value=float(alike),
                 unit="correlation"),
        Estimate(name="score variance common to all texts, median head",
                 value=float(maps.common_variance_share.median()), null=0.0, unit="of the variance"),
        Estimate(name="mean attention distance, most local head", value=float(nearest.min()), unit="tokens"),
        Estimate(name="mean attention distance, least local head", value=float(nearest.max()), unit="tokens"),
    ]  # fmt: skip


def _clearest(found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, seed: int) -> list[Estimate]:
    """The largest mass at an offset, also with shuffled tokens, and the steepest detected decay."""
    # chosen and measured on different texts: the largest of many numbers is too large on its own
    chosen = seen.mass[::2].mean(0)
    layer, head, place = (int(x) for x in np.unravel_index(chosen.argmax(), chosen.shape))
    offset, estimates = seen.offsets[place], []
    name = f"layer {layer + 1}, head {head + 1}, {_format_offset(offset)}"
    for start, own, rows in (
        ("largest attention mass at an offset", seen, slice(1, None, 2)),
        ("the same with shuffled tokens", again, slice(None)),
    ):
        if offset in own.offsets:
            place = own.offsets.index(offset)
            values, null = own.mass[rows, layer, head, place], float(own.uniform_mass[layer, place])
            estimates.append(mean_estimate(f"{start}: {name}", values, seed, "of its attention mass", null))
    if found.decaying_heads:
        layer, head = max(found.decaying_heads, key=lambda place: found.decay.slope[place])
        value, low, high = (float(x[layer, head]) for x in (found.decay.slope, found.decay.low, found.decay.high))
        name = f"steepest decay of attention with distance: layer {layer + 1}, head {head + 1}"
        estimates.append(Estimate(name=name, value=value, low=low, high=high, null=0.0, unit="nats per token"))
    return estimates


def _replacement_estimates(
    subject: ModelAdapter, chosen: Sample, found: DetectedHeads, seed: int
) -> Measured[list[Estimate]]:
    """Effect of replacing the detected heads by uniform attention, and by closed-form patterns."""
    heads = found.heads
    if not heads:
        return Measured([])
    facts, base = subject.info, metric_for(subject, chosen, seed)
    usual = base.per_text()
    others = [(layer, head) for layer in range(facts.layers) for head in range(facts.heads)]
    others = [others[place] for place in np.random.default_rng(seed).permutation(len(others))]
    control = [place for place in others if place not in heads][: len(heads)]
    arms = {
        "detected heads replaced by uniform attention": ReplacePattern(facts, heads),
        "detected heads replaced by closed-form patterns": ReplacePattern(facts, heads, found.patterns),
    }
    if control:
        arms[f"{len(control)} other heads replaced by uniform attention"] = ReplacePattern(facts, control)
    estimates, missing = list[Estimate](), dict[str, str]()
    for name, watch in arms.items():
        base.subject = InterventionAdapter(subject, watch)
        try:
            estimates.append(mean_estimate(f"increase, {name}", base.per_text() - usual, seed, base.unit))
        except NotApplicable as reason:
            missing[name] = str(reason)
    return Measured(estimates, missing)


def _format_offset(offset: float) -> str:
    if offset == 0:
        return "itself"
    return f"{abs(offset):.0f} {'back' if offset > 0 else 'ahead'}"


def _table(found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, maps: AttentionMaps) -> Table:
    rows = []
    for layer, head in _sorted_heads(found, len(found.mass.ravel())):
        place = _place(found, again, layer, head)
        shuffled = None if place is None else float(again.mass[:, layer, head, place].mean())
        own = (found.mass[layer, head], found.offset_p[layer, head])
        rest = (
            found.decay.slope[layer, head],
            found.decay.explained[layer, head],
            found.decay_p[layer, head],
            found.first_token_mass[layer, head],
            seen.own_mass[:, layer, head].mean(),
            seen.distance[:, layer, head].mean(),
            maps.common_variance_share[layer, head],
        )
        where = _format_offset(found.offset[layer, head])
        mass, p, *others = (float(x) for x in (*own, *rest))
        rows.append((layer + 1, head + 1, where, mass, shuffled, p, *others))
    columns = (
        "layer",
        "head",
        "main offset",
        "of its attention mass",
        "tokens shuffled",
        "corrected p",
        "decay with distance",
        "of its profile explained by the decay",
        "corrected p of the decay",
        "on the first token",
        "on its own token",
        "mean distance",
        "score variance common to all texts",
    )
    caption = "Mass at an offset, or on its own token, is a share of the mass that is not on the first token."
    return Table(title="Attention of each head by offset", columns=columns, rows=tuple(rows), caption=caption)


def _sorted_heads(found: DetectedHeads, most: int) -> list[tuple[int, int]]:
    """Heads sorted by their largest mass at one offset or on the first token."""
    order = np.argsort(-np.maximum(found.mass, found.first_token_mass).ravel(), kind="stable")[:most]
    return [(int(place) // found.mass.shape[1], int(place) % found.mass.shape[1]) for place in order]


def _profile_chart(found: DetectedHeads, seen: AttentionProfile) -> Chart:
    across, means = tuple(float(offset) for offset in seen.offsets), seen.mass.mean(0)
    heads = sorted(np.ndindex(*found.mass.shape), key=lambda place: -found.mass[place])[:5]
    lines = [
        Line(name=f"layer {layer + 1}, head {head + 1}", x=across, y=tuple(means[layer, head].tolist()))
        for layer, head in heads
    ]
    even = Line(name="uniform attention", x=across, y=tuple(seen.uniform_mass[_widest(seen)].tolist()), null=True)
    title = "Attention mass by offset, in the heads with the largest mass at one offset"
    return Chart(title=title, x="offset (query - key)", y="share of attention mass", lines=(*lines, even))


def _pattern_heatmaps(found: DetectedHeads, maps: AttentionMaps) -> HeatmapGrid:
    means = (maps.total / max(1, maps.texts)).numpy()
    panels = [
        heatmap_of(
            f"layer {layer + 1}, head {head + 1}",
            means[layer, head],
            SIDE,
            f"mainly {_format_offset(found.offset[layer, head])}",
        )
        for layer, head in _sorted_heads(found, SHOWN)
    ]
    title = "Mean attention patterns of the heads with the largest mass at one offset"
    return HeatmapGrid(title=title, x="key", y="query", panels=tuple(panels))


def _answer(
    found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, mass: float, estimates: dict[str, Estimate]
) -> str:
    reach = f"Offsets up to {max(map(abs, seen.offsets))} were tested, farther ones were not."
    kinds = []
    for phrase, heads in (("a fixed offset", found.offset_heads), ("one offset weakly", found.weak_offset_heads)):
        offsets, counts = np.unique([found.offset[place] for place in heads], return_counts=True)
        listed = ", ".join(
            f"{number} at {_format_offset(kind)}" for kind, number in zip(offsets, counts, strict=True)
        )
        kinds += [f"{len(heads)} attend to {phrase} ({listed})"] if heads else []
    kinds += [f"{len(found.first_token_heads)} attend to the first token"] if found.first_token_heads else []
    kinds += [f"{len(found.decaying_heads)} decay with distance"] if found.decaying_heads else []
    if not kinds:
        return f"None of {found.mass.size} heads attends to a fixed offset, to the first token, or nearby. {reach}"
    sentences = [f"Of {found.mass.size} heads, {'; '.join(kinds)}.", reach]
    if found.heads:
        kept = len(_persistent(found, again, mass))
        sentences.insert(1, f"With shuffled tokens {kept} of these {len(found.heads)} do the same.")
    names = {"closed-form patterns": "Replacing them by closed-form patterns",
             "uniform attention": "replacing them by uniform attention"}  # fmt: skip
    done = {
        words: estimates[name]
        for end, words in names.items()
        if (name := f"increase, detected heads replaced by {end}") in estimates
    }
    return " ".join([*sentences, *([f"{describe_effects(done)}."] if len(done) == 2 else [])])
