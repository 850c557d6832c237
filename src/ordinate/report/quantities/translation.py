"""Translations."""

from collections.abc import Sequence
from statistics import fmean

from ordinate.report.quantity import Row, Surprise


class TranslatedBits(Surprise):
    """Bits that a model needs to say each byte of a translation."""

    name, column, size, section = "bits per byte", "bits_per_byte", "bytes", "pairs"
    units, source, inputs, loss = "pairs", "pairs", "sentences", "nats a token"
    this, answers = "these", "tokens"
    models = "Encoder-decoders"
    charts = ("training", "lengths", "crossing", "cost")
    sections = ("samples", "crossing")
    also = (
        ("accuracy", "tokens right", ".1%"),
        ("exact", "whole sentences right", ".1%"),
        ("chrf", "chrF", ".1f"),
    )
    explained = (
        "Bits per byte of held-out translations: how many bits the model needs to say each next byte of the "
        "translation, given the source and what comes before; lower is better. Tokens right: its likeliest next "
        "token is the one. Whole sentences right and chrF (0 to 100, higher is better): of what it writes by "
        "itself, the likeliest token each time."
    )
    further = (
        "At 2x and more: so many pairs behind each other in one, sources and translations both; the same bytes said "
        "from more."
    )
    curve = (
        "Bits per byte of the same held-out translations, a pair at a time and several behind each other as one. "
        "Nothing as long was ever trained. Bars: 95 % intervals."
    )
    written = (
        "Each model translates the grey source, which was held out, taking the likeliest token each time. Below what "
        "it writes, what was wanted."
    )

    def title(self, plan: Row, learned: Row) -> str:
        """The pairs."""
        return f"translating {learned['name']}"

    def besides(self, label: str, results: Sequence[Row]) -> list[str]:
        """What its own translations score, beside those of one who copies the source."""
        rows = [row for row in (result["lengths"][0] for result in results) if row.get("chrf_copied") is not None]
        if not rows:
            return []
        own, copied = (fmean(row[name] for row in rows) for name in ("chrf", "chrf_copied"))
        better = "" if own > copied else ", so it has not learned to translate"
        return [
            f"What {label} writes by itself scores chrF {own:.1f}; the source, copied, scores {copied:.1f}{better}."
        ]

    def step(self, plan: Row, learned: Row) -> str:
        """Pairs, and several behind each other."""
        further = f", then given {max(plan['multiples'])} of them as one" if max(plan["multiples"]) > 1 else ""
        return f"{plan['batch']} pairs of up to {plan['length']} tokens on each side{further}"
