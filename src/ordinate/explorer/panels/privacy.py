"""Permuted input, undone on the output, and the attack that reads it."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class Privacy(Panel):
    """Permuted input, undone on the output, and the attack that reads it."""

    place = 8
    title = "Secret?"
    question = "If I permute the input and undo it on the output, is my text private?"
    page = "questions/privacy.md"
    cited = Citation("studies/probes/rope/findings/privacy.json", "tokens recovered, rows permuted, layer 0")

    def answer(self, number: Number) -> Answer:
        return Answer(
            "No",
            "The result is the same to the last digit if positions and mask are permuted too. But anybody who "
            f"knows the model can read the text back: {number} of the tokens from permuted rows.",
        )
