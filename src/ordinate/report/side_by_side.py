"""HTML page that sets studies beside each other: their decisions, one table of values, the agreement of ranks."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ordinate.evaluation.rank_agreement import rank_agreement
from ordinate.report.decision import decide
from ordinate.report.decision_card import DecisionCard
from ordinate.report.html import content_policy, template_environment
from ordinate.report.read import Study
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import ArmSummary, LengthResult, study_tables, summarise

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
            agreement=[line for pair in combinations(found, 2) for line in agreement_lines(*pair)],
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


def agreement_lines(one: Ranked, other: Ranked) -> list[str]:
    """Say how far two studies rank their common labels alike, at the trained and at the longest length.

    There is no line for a length at which they have fewer than four labels in common.
    """
    (name, study, _), (other_name, other_study, _) = one, other
    signs = (study.metric.sign, other_study.metric.sign)
    lines = []
    for longest, where in ((False, "trained"), (True, "longest")):
        tables, others = (study_tables(this, longest=longest) for this in (study, other_study))
        if len(tables.keys() & others.keys()) < MIN_RANKED:
            continue
        found = rank_agreement(tables, others, signs)
        low, high = found.interval
        lines.append(
            f"At the {where} length {name} and {other_name} rank {found.models} common {study.noun}s alike in "
            f"{found.concordant} of {found.pairs} pairs (Kendall's tau {found.tau:.2f} [{low:.2f}, {high:.2f}]). Of "
            f"the {found.decided} pairs with a significant difference in {name}, {other_name} confirms "
            f"{found.confirmed} and contradicts {found.contradicted} significantly."
        )
    return lines
