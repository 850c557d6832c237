"""Each scheme in numbers, with intervals, and set against the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ordinate.report.read import Study
from ordinate.study.statistics import Draws, Interval, Numbers, bits_per_byte, interval, resampled


@dataclass(frozen=True)
class Level:
    """How well a scheme reads at one length.

    Args:
        times: the length as a multiple of the trained one.
        length: the length [tokens].
        bits: bits per byte.
        interval: where 95 % of the resamples lie; None if there is one document only.
        rise: bits per byte above those at the trained length, on the same documents.
        rise_interval: its interval.
    """

    times: int
    length: int
    bits: float
    interval: Interval | None
    rise: float
    rise_interval: Interval | None


@dataclass(frozen=True)
class Entry:
    """A scheme in numbers.

    Args:
        label: as written in the plan.
        seeds: finished runs.
        levels: by multiple of the trained length.
        behind: bits per byte more than the best scheme on the same documents and seeds; None for the best.
        behind_interval: its interval.
    """

    label: str
    seeds: int
    levels: dict[int, Level]
    behind: float | None = None
    behind_interval: Interval | None = None

    @property
    def trained(self) -> Level:
        """At the trained length."""
        return self.levels[min(self.levels)]

    @property
    def longest(self) -> Level:
        """At the longest length measured."""
        return self.levels[max(self.levels)]


def summarise(study: Study) -> list[Entry]:
    """Every scheme with a finished run, the best at the trained length first."""
    runs = {label: study.done(label) for label in study.plan["schemes"]}
    entries = [_entry(label, results) for label, results in runs.items() if results]
    entries.sort(key=lambda entry: entry.trained.bits)
    if len(entries) < 2:
        return entries
    best = entries[0]
    return [best, *(_behind(entry, best, runs) for entry in entries[1:])]


def _entry(label: str, results: Sequence[dict[str, Any]]) -> Entry:
    multiples = [row["times"] for row in results[0]["lengths"] if row["nats_per_token"] is not None]
    tables = {times: _table(results, times) for times in multiples}
    first = tables[min(multiples)]
    draws = Draws.of(first[0].shape[1], len(results))
    base = resampled(*first, draws)
    levels = {}
    for times, (nats, size) in tables.items():
        values, documents = resampled(nats, size, draws), len(size)
        bits = bits_per_byte(nats, size)
        length = next(row["length"] for row in results[0]["lengths"] if row["times"] == times)
        rise = bits - bits_per_byte(*first)
        levels[times] = Level(
            times, length, bits, interval(values, documents), rise, interval(values - base, documents)
        )
    return Entry(label, len(results), levels)


def _behind(entry: Entry, best: Entry, runs: dict[str, list[dict[str, Any]]]) -> Entry:
    shared = {item["run"]["seed"] for item in runs[entry.label]} & {item["run"]["seed"] for item in runs[best.label]}
    if not shared:
        return entry
    pair = [
        _table([item for item in runs[label] if item["run"]["seed"] in shared], entry.trained.times)
        for label in (entry.label, best.label)
    ]
    documents = len(pair[0][1])
    draws = Draws.of(documents, len(shared))
    difference = resampled(*pair[0], draws) - resampled(*pair[1], draws)
    value = bits_per_byte(*pair[0]) - bits_per_byte(*pair[1])
    return Entry(entry.label, entry.seeds, entry.levels, value, interval(difference, documents))


def _table(results: Sequence[dict[str, Any]], times: int) -> tuple[Numbers, Numbers]:
    rows = [next(row for row in item["lengths"] if row["times"] == times)["documents"] for item in results]
    nats = np.array([[document["nats"] for document in documents] for documents in rows], float)
    return nats, np.array([document["bytes"] for document in rows[0]], float)
