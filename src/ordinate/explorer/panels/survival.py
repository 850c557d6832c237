"""Position in the residual stream, layer by layer."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel

CHART = "Variance of the residual stream explained by position"


class Survival(Panel):
    """Position in the residual stream, layer by layer."""

    place = 7
    title = "Does it survive?"
    question = "Position is added once, at the input. Is it still there after the last layer?"
    page = "questions/position_retention.md"
    cited = Citation(
        "studies/probes/minilm/findings/position_retention.json", "variance explained by position, final layer"
    )
    charts = tuple(
        Citation(f"studies/probes/{model}/findings/position_retention.json", CHART) for model in ("rope", "minilm")
    )

    def answer(self, number: Number) -> Answer:
        return Answer(
            "It depends",
            "The skip connection carries it, and each layer adds something over it. In MiniLM, after six "
            f"layers, position still explains {number} of the variance; without skip connections nothing is left.",
        )
