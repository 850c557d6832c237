"""Write the tables of docs/questions/relations.md from the newest saved result: `python .ci/relations.py`."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from generated_parts import Pages, write
from speeds import newest

PAGE = Path(__file__).parents[1] / "docs" / "questions" / "relations.md"
LEARNT, KEPT = 0.95, 0.9
LINKS = {
    "previous token": "previous",
    "same distance": "same_distance",
    "first symbol": "nth",
    "n-th symbol": "nth",
    "counting": "counting",
    "copying": "copy",
    "reversal": "reverse",
    "sorting": "sorting",
}
Rows = list[dict[str, Any]]


def pages() -> Pages:
    """Return the page with its answer, its tables and the conditions of training."""
    results = newest("relations")[1]["results"]
    found, about = results["relations"], results["about"]
    curve = int(about["every"])
    return {
        PAGE: {
            "answer": answer(found),
            "learnt": table(found, accuracy),
            "speed": table(found, lambda rows: steps(rows, curve)),
            "length": table(found, reach),
            "conditions": conditions(about),
        }
    }


def answer(found: dict[str, dict[str, Rows]]) -> str:
    """Say for each relation which schemes learn it in every seed, and which in some."""
    lines = []
    for relation, by_scheme in found.items():
        learnt = {scheme: [at(row, 1) >= LEARNT for row in rows] for scheme, rows in by_scheme.items()}
        every = [scheme for scheme, seeds in learnt.items() if all(seeds)]
        some = [f"{scheme} ({sum(seeds)} of {len(seeds)} seeds)" for scheme, seeds in learnt.items()
                if any(seeds) and not all(seeds)]  # fmt: skip
        who = "all" if len(every) == len(learnt) else ", ".join(every) or "none in every seed"
        lines.append(f"- **{relation}**: {who}" + (f"; {', '.join(some)}" if some else ""))
    return "\n".join(lines)


def table(found: dict[str, dict[str, Rows]], cell: Callable[[Rows], str]) -> str:
    """A row for each relation, a column for each scheme."""
    schemes = list(next(iter(found.values())))
    lines = [f"| relation | {' | '.join(schemes)} |", "|---" * (len(schemes) + 1) + "|"]
    for relation, by_scheme in found.items():
        cells = [cell(by_scheme[scheme]) for scheme in schemes]
        lines.append(f"| [{relation}](../tasks/{LINKS[relation]}.md) | {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracy(rows: Rows) -> str:
    """Mean accuracy over seeds, in bold if it is learnt in all; with the lowest and highest if they differ."""
    values = [at(row, 1) for row in rows]
    shown = f"**{mean(values):.2f}**" if min(values) >= LEARNT else f"{mean(values):.2f}"
    spread = f"{min(values):.2f} to {max(values):.2f}"
    return shown if max(values) - min(values) < 0.02 else f"{shown} ({spread})"


def steps(rows: Rows, every: int) -> str:
    """Steps of training until the accuracy is LEARNT, the slowest of the seeds; a dash if one never reaches it."""
    reached = [next((place for place, value in enumerate(row["curve"], 1) if value >= LEARNT), None) for row in rows]
    return "–" if None in reached else str(every * max(place for place in reached if place is not None))


def reach(rows: Rows) -> str:
    """Largest multiple of the trained length up to which the mean accuracy stays above KEPT."""
    multiples = [int(times) for times in rows[0]["accuracy"]]
    kept = 0
    for times in multiples:
        if mean(at(row, times) for row in rows) < KEPT:
            break
        kept = times
    return f"{kept}x" if kept else "–"


def at(row: dict[str, Any], times: int) -> float:
    """Accuracy of a model at a multiple of the trained length."""
    return float(row["accuracy"][str(times)])


def conditions(about: dict[str, Any]) -> str:
    """The task and training of each relation."""
    lines = ["| relation | task | tokens | most frequent answer | steps |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | `{one['task']}` | {one['length']} | {one['baseline']:.2f} | {one['steps']} |"
        for name, one in about["relations"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    write(pages())
