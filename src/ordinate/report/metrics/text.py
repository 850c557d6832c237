"""Cross-entropy of the next token, per byte of text."""

from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.report.metric import CrossEntropyMetric


class BitsPerByte(CrossEntropyMetric):
    """Next-token cross-entropy, in bits per byte of text."""

    quantity, csv_prefix, section = BITS_PER_BYTE, "bits_per_byte", "text"
    units, source, inputs, loss = "documents", "text", "texts", "nats a token"
    charts = ("training", "lengths", "positions", "order", "cost")
    sections = ("positions", "order", "samples")
    definition = (
        "Bits per byte on held-out documents: the next-token cross-entropy, divided by the bytes of the text; lower "
        "is better."
    )
    extrapolation_definition = (
        "At 2x and more: longer texts than in training; the same bytes predicted from more context. Shuffled: the "
        "rise of the loss [nats a token] when tokens are shuffled within pairs, or anywhere."
    )
    extrapolation_caption = (
        "Bits per byte of the same held-out text, in windows of the trained length and of its multiples. A falling "
        "line shows that the model uses the additional context; a rising line, that it does not extrapolate to the "
        "length. Bars: 95 % intervals."
    )
    samples_caption = (
        "Each model continues the prompt in grey, which is held-out text. Prompts and random numbers are the same "
        "for all models."
    )
