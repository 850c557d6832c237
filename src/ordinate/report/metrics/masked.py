"""Cross-entropy of masked tokens."""

from ordinate.evaluation.quantity import BITS_PER_MASKED_TOKEN
from ordinate.report.metric import CrossEntropyMetric, ResultRow


class BitsPerMaskedToken(CrossEntropyMetric):
    """Cross-entropy of masked tokens, in bits per masked token."""

    quantity, csv_prefix, section = BITS_PER_MASKED_TOKEN, "bits_per_token", "text"
    units, source, inputs, loss = "documents", "text", "texts", "nats a masked token"
    models = "Encoders"
    charts = ("training", "lengths", "order", "cost")
    sections = ("order",)
    extra_columns = (("accuracy", "masked-token accuracy", ".1%"),)
    definition = (
        "Bits per masked token on held-out documents: the cross-entropy of each masked token, predicted from the "
        "tokens on both sides; lower is better. Accuracy: how often the most probable token is the correct one."
    )
    extrapolation_definition = (
        "At 2x and more: longer texts than in training; the same masked tokens with more context. Shuffled: the rise "
        "of the loss [nats] when the tokens that are not masked are shuffled within pairs, or anywhere."
    )
    extrapolation_caption = (
        "Bits per masked token, for the same tokens in windows of the trained length and of its multiples. A falling "
        "line shows that the model uses the additional context; a rising line, that it does not extrapolate to the "
        "length. Bars: 95 % intervals."
    )

    def title(self, plan: ResultRow, learned: ResultRow) -> str:
        return f"masked tokens of {learned['name']}"
