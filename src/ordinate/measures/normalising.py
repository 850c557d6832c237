"""Attention whose scores become weights in another way than by the softmax."""

from ordinate.measures.scaling import HIDDEN
from ordinate.ops.normalising import Seen, sigmoid, sinkhorn
from ordinate.shapes import Weights
from ordinate.subject import Facts, Unfit, Watch

DIVISIONS = 5


class Sigmoids(Watch):
    """Weighs each key by itself: weights that need not sum to one."""

    def __init__(self) -> None:
        self.kept: Weights | None = None

    def scores(self, layer: int, scores: Weights) -> None:
        """Remember them."""
        self.kept = scores

    def weights(self, layer: int, weights: Weights) -> Weights | None:
        """Put others in their place."""
        return None if self.kept is None else self._made(self.kept, self.kept > HIDDEN)

    def _made(self, scores: Weights, visible: Seen) -> Weights:
        return sigmoid(scores, visible)


class Sinkhorns(Sigmoids):
    """Divides rows and columns by their sums in turns: each token gives about as much as it takes.

    Args:
        facts: the model.

    Raises:
        Unfit: a sum over the queries after a token would tell it of them.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        if facts.causal:
            raise Unfit("it reads from left to right; the sum of a column would tell a token of those after it")

    def _made(self, scores: Weights, visible: Seen) -> Weights:
        return sinkhorn(scores, visible, DIVISIONS)
