"""Accuracy on tasks that generate their own sequences."""

from ordinate.report.metric import AccuracyMetric, ResultRow


class TaskAccuracy(AccuracyMetric):
    """The share of a task's questions that a model answers correctly."""

    section, units, source, inputs, loss = "task", "sequences", "task", "sequences", "nats an answer"
    unseen_word = "fresh"
    charts = ("training", "cost")
    sections = ()
    definition = (
        "Accuracy: the share of questions in fresh sequences answered correctly by the most probable token; higher "
        "is better."
    )
    extrapolation_definition = "At 2x and more: longer sequences than in training."

    def title(self, plan: ResultRow, learned: ResultRow) -> str:
        return str(plan["task"])

    def describe_evaluation(self, plan: ResultRow, learned: ResultRow) -> str:
        return (
            f"Evaluated on {plan['task_samples']:,} fresh sequences at each length, the same for all models, "
            "generated from seeds that are not used in training."
        )
