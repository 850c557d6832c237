"""The decision of a study as text: for each evaluation length what to use, the effect, how sure, and the cost."""

import textwrap
from dataclasses import dataclass

from ordinate.evaluation.comparison import MOST_SEEDS
from ordinate.report.decision import Choice, Cost, Decision, seed_range
from ordinate.report.html import package_text, template_environment
from ordinate.report.metric import Metric
from ordinate.report.read import Study
from ordinate.report.table import MEGABYTE
from ordinate.report.transfer import transfer_line
from ordinate.report.verdict import warnings
from ordinate.report.wording import listed, quoted

# the cost of more than this many would fill the card
MAX_COSTS = 3


@dataclass(frozen=True)
class DecisionCard:
    """A decision as text.

    Args:
        answer: what to use, in a sentence.
        choices: for each evaluation length its heading, and lines of a name and a text.
        warnings: what a reader must know before trusting it.
    """

    answer: str
    choices: list[tuple[str, list[tuple[str, str]]]]
    warnings: list[str]

    @classmethod
    def of(cls, study: Study, decision: Decision) -> "DecisionCard":
        """Word the decision of a study."""
        costs, kind = {cost.label: cost for cost in decision.costs}, study.metric
        choices = [
            (
                _heading(choice, kind),
                [
                    *_lines(choice, costs, kind, decision.training_share),
                    ("transfer", transfer_line(study.plan, choice.times)),
                ],
            )
            for choice in decision.choices
        ]
        return cls(decision.answer, choices, warnings(study))

    def lines(self, width: int) -> list[str]:
        """Return the card for a terminal of so many columns."""
        rows = [self.answer]
        for heading, lines in self.choices:
            rows += ["", heading]
            rows += [line for name, text in lines for line in _hanging(f"  {name:<9} ", text, width)]
        return [*rows, *(part for warning in self.warnings for part in ("", warning)), ""]


def _hanging(name: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width), initial_indent=name, subsequent_indent=" " * len(name))


def decision_html(card: DecisionCard) -> str:
    """Return the card as HTML for a notebook."""
    template = template_environment().from_string(
        '{% import "decision.html.jinja" as decisions %}'
        '<div class="ordinate"><style>{{ style | safe }}</style>{{ decisions.body(card) }}</div>'
    )
    return template.render(card=card, style=package_text("card.css"))


def _lines(
    choice: Choice, costs: dict[str, Cost], kind: Metric, training_share: float | None
) -> list[tuple[str, str]]:
    lines = [("use", listed([quoted(label) for label in choice.labels], "or")), ("effect", _effect(choice, kind))]
    if choice.times == 1 and training_share is not None and training_share < 1:
        share = f"{100 * training_share:.0f} %"
        reached = f"it reached the final training loss of {quoted(choice.next or '')} after {share} of the steps"
        lines.append(("training", reached))
    lines.append(("how sure", _how_sure(choice, kind)))
    costly = [text for label in choice.labels[:MAX_COSTS] if (text := _cost(costs[label], kind, choice))]
    return lines + [("cost", text) for text in costly]


def _heading(choice: Choice, kind: Metric) -> str:
    size = f"{choice.length:,} {kind.extent_unit}"
    if choice.times == 1:
        return f"At the trained {kind.extent} ({size})"
    return f"At {choice.times} times that {kind.extent} ({size})"


def _effect(choice: Choice, kind: Metric) -> str:
    if choice.next is None or choice.difference is None:
        return "not significantly better than any other" if choice.grade == "undecided" else "not known"
    amount = kind.format_effect(choice.difference, choice.interval, choice.relative)
    # with every seed by itself the best is better; over few seeds the interval may include no difference all the same
    wide = choice.next in choice.open and choice.interval is not None and choice.interval[0] < 0
    return f"{amount} than {quoted(choice.next)}, the next best" + (" (interval over seeds)" if wide else "")


def _how_sure(choice: Choice, kind: Metric) -> str:
    on, seeds = f"{choice.documents} {kind.units}", seed_range(choice)
    if choice.grade == "unknown":
        few = choice.documents == 1
        return (
            f"unknown: one {kind.units.removesuffix('s')} gives no interval" if few else "unknown: nothing to compare"
        )
    if choice.grade == "significant":
        return f"significant: {seeds} seeds, {on}, p = {choice.p:.2g} after correction"
    if choice.grade == "provisional":
        return _provisional(choice, on)
    if choice.most_seeds < 2:
        return f"undecided: no significant advantage on {on} with one seed; more may decide (--seeds 3)"
    if choice.seeds_needed is None:
        return f"undecided with {seeds} seeds and {on}; no number of seeds up to {MOST_SEEDS} is expected to decide"
    return f"undecided with {seeds} seeds and {on}; about {_more_seeds(choice)} would decide"


def _provisional(choice: Choice, on: str) -> str:
    """Word what the trained models show with every seed by itself, but not over seeds."""
    if choice.most_seeds == 1:
        return f"provisional: significant on {on} for these trained models; another seed may differ (--seeds 3)"
    said = f"provisional: significant on {on} with each of {seed_range(choice)} seeds"
    if choice.seeds == 1:
        return f"{said} for these trained models; more seeds may differ (--seeds 3)"
    against = f"over seeds not significantly better than {listed([quoted(label) for label in choice.open], 'or')}"
    more = "" if choice.seeds_needed is None else f"; about {_more_seeds(choice)} would show that"
    return f"{said}, but {against}{more}"


def _more_seeds(choice: Choice) -> str:
    more = max(1, (choice.seeds_needed or 0) - choice.seeds)
    return f"{more} more {'seed' if more == 1 else 'seeds'}"


def _cost(cost: Cost, kind: Metric, choice: Choice) -> str:
    if cost.speed is None:
        return ""
    whose = f"{quoted(cost.label)}: " if len(choice.labels) > 1 else ""
    share = "the fastest" if cost.relative_speed == 1 else f"{100 * (cost.relative_speed or 0):.0f} % of the fastest"
    memory = f", {cost.memory / MEGABYTE:,.0f} MB" if cost.memory else ""
    return f"{whose}{cost.speed:,.0f} {kind.speed} a second in training ({share}){memory}"
