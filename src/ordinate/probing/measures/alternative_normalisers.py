"""Alternative normalisers: sigmoid or Sinkhorn in place of the softmax."""

from ordinate.core.shapes import Weights
from ordinate.ops.normalising import Mask, sigmoid, sinkhorn
from ordinate.probing._adapter import MASKED_SCORE, Hooks, ModelInfo, NotApplicable

SINKHORN_ITERATIONS = 5


class SigmoidAttention(Hooks):
    """Sigmoid attention: each key is weighted independently; rows need not sum to 1."""

    def __init__(self) -> None:
        self.kept: Weights | None = None

    def attention_scores(self, layer: int, scores: Weights) -> None:
        self.kept = scores

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        return None if self.kept is None else self._made(self.kept, self.kept > MASKED_SCORE)

    def _made(self, scores: Weights, visible: Mask) -> Weights:
        return sigmoid(scores, visible)


class SinkhornAttention(SigmoidAttention):
    """Sinkhorn normalisation: rows and columns are divided by their sums alternately (nearly doubly stochastic).

    Args:
        facts: description of the model.

    Raises:
        NotApplicable: the model is causal, and sums over columns would leak later tokens.
    """

    def __init__(self, facts: ModelInfo) -> None:
        super().__init__()
        if facts.causal:
            raise NotApplicable(
                "the model is causal, and normalising columns would leak information from later tokens"
            )

    def _made(self, scores: Weights, visible: Mask) -> Weights:
        return sinkhorn(scores, visible, SINKHORN_ITERATIONS)
