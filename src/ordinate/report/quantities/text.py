"""The text that comes next."""

from ordinate.report.quantity import Surprise


class Bits(Surprise):
    """Bits that a model needs to say each next byte of a text."""

    name, column, size, section = "bits per byte", "bits_per_byte", "bytes", "text"
    units, source, inputs, loss = "documents", "text", "texts", "nats a token"
    charts = ("training", "lengths", "positions", "order", "cost")
    sections = ("positions", "order", "samples")
    explained = (
        "Bits per byte on held-out documents: how many bits the model needs to say each next byte; lower is better."
    )
    further = (
        "At 2x and more: texts longer than any in training, the same bytes predicted from more before them. "
        "Shuffled: how many nats a token the loss rises when tokens change places inside pairs, or anywhere."
    )
    curve = (
        "Bits per byte of the same held-out text read in windows of the trained length and of its multiples. A line "
        "that falls uses the additional context; one that rises is lost in it. Bars: 95 % intervals."
    )
    written = (
        "Each model goes on from the grey beginning, which is held-out text. Same beginnings and same random numbers "
        "for all."
    )
