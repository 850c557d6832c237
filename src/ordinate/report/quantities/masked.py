"""The tokens that are hidden."""

from ordinate.report.quantity import Row, Surprise


class HiddenBits(Surprise):
    """Bits that a model needs to say each hidden token of a text."""

    name, column, size, section = "bits per hidden token", "bits_per_token", "asked", "text"
    units, source, inputs, loss = "documents", "text", "texts", "nats a hidden token"
    models = "Encoders"
    charts = ("training", "lengths", "order", "cost")
    sections = ("order",)
    also = (("accuracy", "hidden tokens right", ".1%"),)
    explained = (
        "Bits per hidden token on held-out documents: how many bits the model needs to say each token that was "
        "hidden from it, from those on both sides; lower is better. Right: how often its likeliest token is the one."
    )
    further = (
        "At 2x and more: texts longer than any in training, the same hidden tokens with more around them. Shuffled: "
        "how many nats the loss rises when the tokens that are not hidden change places inside pairs, or anywhere."
    )
    curve = (
        "Bits for each of the same hidden tokens, read in windows of the trained length and of its multiples. A line "
        "that falls uses the additional context; one that rises is lost in it. Bars: 95 % intervals."
    )

    def title(self, plan: Row, learned: Row) -> str:
        """Hidden tokens of the text."""
        return f"hidden tokens of {learned['name']}"
