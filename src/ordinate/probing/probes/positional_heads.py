"""Positional heads: fixed offset, first token, or decay with distance; and their closed-form replacements."""

import time

import numpy as np
import torch

from ordinate.core.finding import Chart, Estimate, Finding, HeatmapGrid, Line, Table
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures.attention_by_offset import (
    AttentionMaps,
    AttentionProfile,
    ReplacePattern,
    attention_profile,
    attention_profile_and_maps,
)
from ordinate.probing.measures.formatting import describe_effects, heatmap_of, mean_estimate
from ordinate.probing.measures.head_detection import MIN_CORRELATION, DetectedHeads, detect_heads
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    random_permutation,
)

SHOWN, SIDE = 12, 32
METHOD = (
    "{whole}. For each head, the attention mass at offsets {first} to {last}, as a share of the mass not on the "
    "first token, over the queries for which all of these offsets exist. A head attends to a fixed offset if "
    "{half:.0%} of that mass is at one offset and its maximum over offsets exceeds that of the permutation "
    "distribution (999 permutations of offset labels within texts), p-values adjusted over heads by Benjamini and "
    "Hochberg. It attends to the first token if {half:.0%} of its total mass is there. Its attention decays with "
    "distance if log(attention) decreases linearly with distance (correlation at least {straight:g}), to less than "
    "half, and more than under permuted offset labels. Common score variance: the share of the within-row variance "
    "of scores that is common to all texts, bias-corrected. Ablation: the detected heads are replaced by uniform "
    "attention, or by the closed-form pattern that was detected; the {what} of {few} is compared with that of the "
    "unchanged model, and with replacing as many other heads by uniform attention. Shuffled: {few}, in random order. "
    "Intervals: 95 %, bootstrap over {noun}."
)
NULL = (
    "A head that attends by content has no offset in common over texts; uniform attention has mass {even:.3g} at "
    "each offset, and {sink:.3g} on the first token."
)


class PositionalHeads(Probe):
    """Detect positional heads and replace them by closed-form attention patterns.

    Args:
        mass: least attention mass on one offset, or on the first token, for a head to count.
    """

    title = "Are there heads for “two to the left”, “the first token”, “nearby”?"

    def __init__(self, *, mass: float = 0.5) -> None:
        self.mass = mass

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts, reasons = time.perf_counter(), model.info, dict[str, str]()
        whole = observation_sample(facts, data, ForwardBudget(without_logits=1))
        few = intervention_sample(facts, data, ForwardBudget(with_logits=4, without_logits=1))
        if whole.length < 12:
            raise NotApplicable(
                f"detecting offsets needs 12 positions or more; got {whole.length}; pass longer texts"
            )
        seen, maps = attention_profile_and_maps(model, whole)
        on_progress(fraction(0.3))
        order = random_permutation(few, few.length, torch.Generator().manual_seed(seed))
        again = attention_profile(model, few, order)
        on_progress(fraction(0.4))
        found = detect_heads(seen, self.mass, seed)
        on_progress(fraction(0.6))
        scale = metric_for(model, few, seed)
        replaced = _replacement_estimates(model, few, found, seed, reasons)
        estimates = _head_estimates(found, seen, again, maps, seed) + replaced
        words = {"whole": whole.description, "few": few.description, "noun": whole.noun, "half": self.mass}
        words |= {"straight": MIN_CORRELATION, "first": seen.offsets[0], "last": seen.offsets[-1], "what": scale.name}
        return Finding(
            question="positional_heads",
            title=self.title,
            answer=_answer(found, {one.name: one for one in estimates}),
            estimates=tuple(estimates),
            tables=(_table(found, seen, again, maps),),
            charts=(_profile_chart(found, seen),),
            pictures=(_pattern_heatmaps(found, maps),),
            method=METHOD.format(**words),
            null=NULL.format(even=seen.uniform_mass, sink=seen.uniform_first_token_mass),
            caveats=(
                "All detected heads are replaced at once; a head replaced alone may be compensated by others.",
                *(*whole.subsampling_notes, *few.subsampling_notes),
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )


def _head_estimates(
    found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, maps: AttentionMaps, seed: int
) -> list[Estimate]:
    heads = found.mass.size
    layer, head = (int(x) for x in np.unravel_index(found.mass.argmax(), found.mass.shape))
    place = seen.offsets.index(int(found.offset[layer, head]))
    name = f"layer {layer + 1}, head {head + 1}, {_format_offset(found.offset[layer, head])}"
    ends, near = {"null": seen.uniform_mass, "unit": "of its attention mass"}, float(len(found.decaying_heads))
    back, nearest = float(len(found.offset_heads)), seen.distance.mean(0)
    own = np.corrcoef(seen.mass.mean(0).ravel(), again.mass.mean(0).ravel())[0, 1] if seen.mass.std() > 0 else 1.0
    return [
        Estimate(name="heads that attend to a fixed offset", value=back, null=0.0, unit=f"of {heads}"),
        Estimate(name="heads that attend to the first token", value=float(len(found.first_token_heads)),
                 unit=f"of {heads}"),
        Estimate(name="heads whose attention decays with distance", value=near, null=0.0, unit=f"of {heads}"),
        mean_estimate(f"largest attention mass at an offset: {name}", seen.mass[:, layer, head, place], seed, **ends),
        mean_estimate(f"the same with shuffled tokens: {name}", again.mass[:, layer, head, place], seed, **ends),
        Estimate(name="correlation of attention profiles with those on shuffled tokens", value=float(own),
                 unit="correlation"),
        Estimate(name="score variance common to all texts, median head",
                 value=float(maps.common_variance_share.median()), null=0.0, unit="of the variance"),
        Estimate(name="mean attention distance, most local head", value=float(nearest.min()), unit="tokens"),
        Estimate(name="mean attention distance, least local head", value=float(nearest.max()), unit="tokens"),
    ]  # fmt: skip


def _replacement_estimates(
    subject: ModelAdapter, chosen: Sample, found: DetectedHeads, seed: int, reasons: dict[str, str]
) -> list[Estimate]:
    """Effect of replacing the detected heads by uniform attention, and by closed-form patterns."""
    heads = found.heads
    if not heads:
        return []
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
    estimates = []
    for name, watch in arms.items():
        base.subject = InterventionAdapter(subject, watch)
        try:
            estimates.append(mean_estimate(f"increase, {name}", base.per_text() - usual, seed, base.unit))
        except NotApplicable as reason:
            reasons[name] = str(reason)
    return estimates


def _format_offset(offset: float) -> str:
    if offset == 0:
        return "itself"
    return f"{abs(offset):.0f} {'back' if offset > 0 else 'ahead'}"


def _table(found: DetectedHeads, seen: AttentionProfile, again: AttentionProfile, maps: AttentionMaps) -> Table:
    rows = []
    for layer, head in _sorted_heads(found, len(found.mass.ravel())):
        place = seen.offsets.index(int(found.offset[layer, head]))
        own = (found.mass[layer, head], again.mass[:, layer, head, place].mean(), found.adjusted_p[layer, head])
        rest = (
            found.slope[layer, head],
            found.first_token_mass[layer, head],
            seen.distance[:, layer, head].mean(),
            maps.common_variance_share[layer, head],
        )
        where = _format_offset(found.offset[layer, head])
        rows.append((layer + 1, head + 1, where, *(float(x) for x in (*own, *rest))))
    columns = (
        "layer",
        "head",
        "main offset",
        "of its attention mass",
        "tokens shuffled",
        "adjusted p",
        "decay with distance",
        "on the first token",
        "mean distance",
        "score variance common to all texts",
    )
    caption = "Mass at an offset is a share of the mass that is not on the first token."
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
    even = Line(
        name="uniform attention", x=(across[0], across[-1]), y=(seen.uniform_mass, seen.uniform_mass), null=True
    )
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


def _answer(found: DetectedHeads, estimates: dict[str, Estimate]) -> str:
    count = found.mass.size
    sentences = []
    if found.offset_heads:
        kinds, counts = np.unique([found.offset[place] for place in found.offset_heads], return_counts=True)
        listed = ", ".join(f"{number} at {_format_offset(kind)}" for kind, number in zip(kinds, counts, strict=True))
        sentences.append(f"Of {count} heads, {len(found.offset_heads)} attend to a fixed offset ({listed}).")
    else:
        sentences.append(f"None of {count} heads attends to a fixed offset.")
    sentences.append(
        f"{len(found.first_token_heads)} attend to the first token, {len(found.decaying_heads)} decay with distance."
    )
    closed, even = (
        estimates.get(f"increase, {name}")
        for name in (
            "detected heads replaced by closed-form patterns",
            "detected heads replaced by uniform attention",
        )
    )
    if closed is not None and even is not None:
        done = {"Replacing them by closed-form patterns": closed, "replacing them by uniform attention": even}
        sentences.append(f"{describe_effects(done)}.")
    return " ".join(sentences)
