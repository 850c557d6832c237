"""Accuracy of image classification."""

from ordinate.report.metric import AccuracyMetric, ResultRow


class ImageAccuracy(AccuracyMetric):
    """The share of images whose class is predicted correctly."""

    section, units, source, inputs, loss = "images", "images", "images", "images", "nats an image"
    models, extent, extent_unit = "Vision models", "size", "pixels"
    this, extrapolation_phrase = "these", "classify larger images than in training"
    extrapolation_title = "Accuracy on larger images"
    speed = "images"
    charts = ("training", "lengths", "cost")
    sections = ()
    definition = "Accuracy: the share of held-out images whose class is predicted correctly; higher is better."
    extrapolation_definition = (
        "At 2x and more: the same images with sides that many times as long, in patches of the trained size."
    )
    extrapolation_caption = (
        "Accuracy on the same held-out images at the trained size and at its multiples, in patches of the trained "
        "size, so that there are more of them. Bars: 95 % intervals."
    )

    def step(self, plan: ResultRow, learned: ResultRow) -> str:
        size = learned["pixels"]
        longest = max(plan["eval_length_multiples"])
        further = f", evaluated on images of up to {longest} times that size" if longest > 1 else ""
        return f"{plan['batch']} images of {size} x {size} pixels{further}"

    def describe_evaluation(self, plan: ResultRow, learned: ResultRow) -> str:
        return f"Evaluated on held-out images: {learned['held_out']}."
