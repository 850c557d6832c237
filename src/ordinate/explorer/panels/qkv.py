"""From X to one row of self-, cross- or cached attention, with every number, and Q, K and V exchanged."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class QueriesKeysValues(Panel):
    """From X to one row of self-, cross- or cached attention, with every number, and Q, K and V exchanged."""

    place = 4
    title = "Q, K and V"
    question = "Q, K and V all come from the same X. Are they really three things?"
    page = "questions/qk_roles.md"
    cited = Citation("studies/probes/rope/findings/qk_roles.json", "increase, queries replaced by keys")

    def answer(self, number: Number) -> Answer:
        return Answer(
            "Yes",
            "Three matrices make three projections of one input: queries are compared with keys, and values are "
            "passed on. Scores depend only on the product W_Q W_Kᵀ, but it must not be symmetric: replacing "
            f"queries by keys raises the loss of a trained decoder by {number} nats per token.",
        )
