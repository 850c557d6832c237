"""HTML page that sets studies beside each other: their decisions, one table of values, the agreement of ranks."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from scipy.stats import kendalltau

from ordinate.report.decision import decide
from ordinate.report.decision_card import DecisionCard
from ordinate.report.html import content_policy, template_environment
from ordinate.report.read import Study
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import ArmSummary, LengthResult, summarise

# with fewer, a rank correlation says nothing
MIN_RANKED = 4
Ranked = tuple[str, Study, list[ArmSummary]]


def side_by_side_page(studies: Sequence[tuple[str, Study]]) -> str:
    """Return a self-contained HTML page without scripts; every text from the data is escaped.

    Args:
        studies: each with the name of its folder.
    """
    found: list[Ranked] = [(name, study, summarise(study)) for name, study in studies]
    return (
        template_environment()
        .get_template("side_by_side.html.jinja")
        .render(
            policy=content_policy(),
            title=f"{len(found)} studies side by side",
            studies=[
                {
                    "name": name,
                    "subtitle": subtitle(study),
                    "card": DecisionCard.of(study, decide(study, entries)),
                    "head": f"{name}: {study.metric.name}",
                }
                for name, study, entries in found
            ],
            rows=_rows(found),
            agreement=[line for pair in combinations(found, 2) for line in rank_agreement(*pair)],
        )
    )


def _rows(found: Sequence[Ranked]) -> list[dict[str, Any]]:
    labels = dict.fromkeys(label for _, study, _ in found for label in study.arms)
    return [{"label": label, "cells": [_cells(label, *one) for one in found]} for label in labels]


def _cells(label: str, _: str, study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Return rank and value at the trained length, and the value at the longest."""
    place, entry = next(((i, one) for i, one in enumerate(entries) if one.label == label), (0, None))
    if entry is None:
        return ["", "", ""]
    kind = study.metric

    def value(level: LengthResult) -> str:
        bounds = f" {kind.format_interval(level.interval)}" if level.interval else ""
        return kind.format_value(level.value) + bounds

    far = f"{value(entry.longest)} at {entry.longest.times}x" if len(entry.levels) > 1 else ""
    return [str(place + 1), value(entry.trained), far]


def rank_agreement(one: Ranked, other: Ranked) -> list[str]:
    """Return a sentence on how far two studies rank their common labels alike, by Kendall's tau; none for few."""
    (name, study, entries), (other_name, other_study, other_entries) = one, other
    values, others = (
        {entry.label: kind.sign * entry.trained.value for entry in ranked}
        for kind, ranked in ((study.metric, entries), (other_study.metric, other_entries))
    )
    common = [label for label in values if label in others]
    if len(common) < MIN_RANKED:
        return []
    tau = float(kendalltau([values[label] for label in common], [others[label] for label in common]).statistic)
    pairs = len(common) * (len(common) - 1) // 2
    return [
        f"{name} and {other_name} rank {len(common)} common {study.noun}s alike in {round(pairs * (1 + tau) / 2)} of "
        f"{pairs} pairs at the trained length (Kendall's tau {tau:.2f})."
    ]
