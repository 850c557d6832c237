"""Rotations and biases by distance: the formulas of RoPE, its scalings, ALiBi, T5, KERPLE and FIRE."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class RotationAndBias(Panel):
    """Rotations and biases by distance: the formulas of RoPE, its scalings, ALiBi, T5, KERPLE and FIRE."""

    place = 5
    title = "Rotation and bias"
    question = "Rotate queries and keys, or subtract from the scores: which is better?"
    page = "schemes/rope.md"
    cited = Citation("studies/quick/results.csv", "alibi:behind_best", "bits per byte")
    models = ("t5",)

    def answer(self, number: Number) -> Answer:
        return Answer(
            "It depends",
            f"Both depend on the distance alone. At the trained length RoPE leads, and ALiBi is {number} bits per "
            "byte behind; far beyond that length it is the reverse.",
        )
