"""Questions of a task that makes its own sequences."""

from ordinate.report.quantity import Row, Share


class Accuracy(Share):
    """The share of a task's questions that a model answers rightly."""

    section, units, source, inputs, loss = "task", "sequences", "task", "sequences", "nats an answer"
    drawn = "fresh"
    charts = ("training", "cost")
    sections = ()
    explained = (
        "Accuracy: the share of the questions of fresh sequences that the likeliest token answers; higher is better."
    )
    further = "At 2x and more: sequences longer than any in training."

    def title(self, plan: Row, learned: Row) -> str:
        """The task as it was given."""
        return str(plan["task"])

    def measured_on(self, plan: Row, learned: Row) -> str:
        """Fresh sequences."""
        return (
            f"Measured on {plan['fresh']:,} fresh sequences at each length, the same for all, drawn from seeds that "
            "no step of training draws from."
        )
