"""The sinusoidal matrix: its rows, their distances, its slow waves, and a sawtooth beside it."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class Matrix(Panel):
    """The sinusoidal matrix: its rows, their distances, its slow waves, and a sawtooth beside it."""

    place = 2
    title = "The matrix P"
    question = "Some rows of the sinusoidal matrix lie very close. Does that matter?"
    page = "questions/position_similarity.md"
    cited = Citation(
        "studies/probes/minilm/findings/position_similarity.json", "increase, adjacent positions swapped"
    )
    models = ()

    def answer(self, number: Number) -> Answer:
        return Answer(
            "No",
            "From width 16 on the closest rows are always neighbours, and neighbours are meant to be similar. "
            "A trained model still distinguishes them: swapping adjacent positions changes the output of "
            f"MiniLM by {number} of its norm.",
        )
