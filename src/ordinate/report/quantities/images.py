"""Images by class."""

from ordinate.report.quantity import Row, Share


class ImagesRight(Share):
    """The share of images whose class is told rightly."""

    section, units, source, inputs, loss = "images", "images", "images", "images", "nats an image"
    models, extent, extent_unit = "Vision models", "size", "pixels"
    this, taken, beyond = "these", "Shown", "see larger ones than in training"
    beyond_title = "Images larger than in training"
    speed = "images"
    charts = ("training", "lengths", "cost")
    sections = ()
    explained = "Accuracy: the share of held-out images whose class the model tells rightly; higher is better."
    further = "At 2x and more: the same images, each side so many times as long, in patches of the trained size."
    curve = (
        "Accuracy on the same held-out images at the trained size and at its multiples, in patches of the trained "
        "size, so that there are more of them. Bars: 95 % intervals."
    )

    def step(self, plan: Row, learned: Row) -> str:
        """Images of their size, and larger ones."""
        size = learned["pixels"]
        further = f", then shown images of up to {max(plan['multiples'])} times that size"
        return f"{plan['batch']} images of {size} x {size} pixels{further if max(plan['multiples']) > 1 else ''}"

    def measured_on(self, plan: Row, learned: Row) -> str:
        """What was held out."""
        return f"Measured on images that no model has seen: {learned['held_out']}."
