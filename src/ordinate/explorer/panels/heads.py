"""Attention heads with weights in closed form."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class HandmadeHeads(Panel):
    """Attention heads with weights in closed form."""

    place = 6
    title = "Heads made by hand"
    question = "Can a head attend “two to the left” with weights written by hand?"
    page = "questions/positional_heads.md"
    cited = Citation(
        "studies/probes/minilm/findings/positional_heads.json",
        "largest attention mass at an offset: layer 1, head 3, 1 back",
    )
    models = ()

    def answer(self, number: Number) -> Answer:
        return Answer(
            "Yes",
            "A shift by k positions is a rotation, so that two constant matrices suffice; and trained models "
            f"find them: one head of MiniLM puts {number} of its attention on the token before.",
        )
