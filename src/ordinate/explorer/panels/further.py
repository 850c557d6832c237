"""Beyond the trained length: loss by position of six models, and scaled rotations."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class Further(Panel):
    """Beyond the trained length: loss by position of six models, and scaled rotations."""

    place = 9
    title = "Further"
    question = "How far can a model read, and which scaling helps?"
    page = "questions/extrapolation.md"
    cited = Citation(
        "studies/probes/rope/findings/extrapolation.json", "increase with 512 tokens of context in place of 128"
    )

    def answer(self, number: Number) -> Answer:
        return Answer(
            "It depends",
            "Biases that fall with distance keep working; rotations and tables meet angles and rows that they "
            "were never trained on. Reading 512 bytes in place of the 128 of its training raises the loss of "
            f"a decoder with RoPE by {number} nats per byte.",
        )
