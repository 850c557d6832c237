"""Order: swapped letters and words, at each depth, with and without positions, mask and skip connections."""

from ordinate.explorer._panel import Answer, Citation, Number, Panel


class Order(Panel):
    """Order: swapped letters and words, at each depth, with and without positions, mask and skip connections."""

    place = 1
    title = "Order"
    question = "Rows of X have an order. Why is attention said to ignore it?"
    page = "questions/order_sensitivity.md"
    cited = Citation("studies/probes/rope/findings/order_sensitivity.json", "increase, shuffled completely")

    def answer(self, number: Number) -> Answer:
        return Answer(
            "It depends",
            "Attention is a weighted sum, and a sum has no order: without positions, one layer cannot "
            "distinguish “ab” from “ba” before the last letter. Positions can, and so can a causal mask, from "
            f"the second layer on. Shuffling whole texts raises the loss of a trained decoder by {number} nats "
            "per token.",
        )
