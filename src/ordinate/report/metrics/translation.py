"""Cross-entropy of translations, per byte of the target."""

from collections.abc import Sequence
from statistics import fmean

from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.report.metric import CrossEntropyMetric, ResultRow


class TranslationBitsPerByte(CrossEntropyMetric):
    """Cross-entropy of the target given the source, in bits per byte."""

    quantity, csv_prefix, section = BITS_PER_BYTE, "bits_per_byte", "pairs"
    units, source, inputs, loss = "pairs", "pairs", "sentences", "nats a token"
    this, answers = "these", "tokens"
    models = "Encoder-decoders"
    charts = ("training", "lengths", "crossing", "cost")
    sections = ("samples", "crossing")
    extra_columns = (
        ("accuracy", "token accuracy", ".1%"),
        ("exact", "exact matches", ".1%"),
        ("chrf", "chrF", ".1f"),
    )
    definition = (
        "Bits per byte of held-out translations: the cross-entropy of the target given the source and the previous "
        "target tokens (teacher forcing), divided by the bytes of the target; lower is better. Token accuracy: how "
        "often the most probable next token is correct. Exact matches and chrF (0 to 100, higher is better): of "
        "translations by greedy decoding."
    )
    extrapolation_definition = (
        "At 2x and more: that many pairs concatenated into one, sources and targets alike; the same bytes predicted "
        "from more context."
    )
    extrapolation_caption = (
        "Bits per byte of the same held-out translations, one pair at a time and several concatenated. Training has "
        "no pairs of such length. Bars: 95 % intervals."
    )
    samples_caption = (
        "Each model translates the held-out source in grey by greedy decoding. The reference stands below its "
        "translation."
    )

    def title(self, plan: ResultRow, learned: ResultRow) -> str:
        return f"translating {learned['name']}"

    def extra_sentences(self, label: str, results: Sequence[ResultRow]) -> list[str]:
        # copying the source is the baseline that a translation has to beat
        rows = [row for row in (result["lengths"][0] for result in results) if row.get("chrf_copied") is not None]
        if not rows:
            return []
        own, copied = (fmean(row[name] for row in rows) for name in ("chrf", "chrf_copied"))
        better = "" if own > copied else ", so it has not learned to translate"
        return [
            f"Translations of {label} by greedy decoding reach chrF {own:.1f}; copying the source gives "
            f"{copied:.1f}{better}."
        ]

    def step(self, plan: ResultRow, learned: ResultRow) -> str:
        further = (
            f", evaluated on up to {max(plan['eval_length_multiples'])} of them concatenated"
            if max(plan["eval_length_multiples"]) > 1
            else ""
        )
        return f"{plan['batch']} pairs of up to {plan['length']} tokens on each side{further}"
