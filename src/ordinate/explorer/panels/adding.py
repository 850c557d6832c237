"""Token and position in one vector: added, concatenated, or a scalar."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class Adding(Panel):
    """Token and position in one vector: added, concatenated, or a scalar."""

    place = 3
    title = "Add or concatenate"
    question = "Do an added position and its token get in each other’s way?"
    page = "questions/position_content_subspaces.md"
    cited = Citation(
        "studies/probes/minilm/findings/position_content_subspaces.json",
        "position variance in the token subspace, input",
    )
    models = ("learned",)

    def answer(self, number: Number) -> Answer:
        return Answer(
            "No",
            "In many dimensions the two hardly overlap, and each can be read back from the sum. In a trained "
            f"BERT {number} of the variance of positions lies in the directions of tokens. A single number from 0 "
            "to 1 fails for another reason: no linear function of it is largest in the middle.",
        )
