"""FIRE: functional interpolation for relative position encoding (Li et al., 2024)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.core.tensors import in_float64
from ordinate.ops.distance import distance
from ordinate.ops.log_bias import LogBias, mlp_pieces
from ordinate.ops.mlp_bias import scalar_relu_mlp
from ordinate.schemes._scheme import Scheme

ThresholdMode = Literal["max", "sqrt", "min"]
FutureDivisor = Literal["query", "max"]
# keeps the share finite at position 0, as in the published code
EPS = 1e-6


class Fire(Scheme):
    """FIRE: a relative position bias computed by an MLP from the distance divided by the query position.

        bias(h, i, j) = f_h( psi(|p_i - p_j|) / (psi(max(p_i, L)) + 1e-6) ),    psi(x) = log(|c x| + 1)

    f is an MLP with one hidden layer; c, L and f are trained. The normalised distance is between 0 and 1 at any
    length, so its range is the same in longer sequences. For query positions below L (initialised to
    512) the bias depends on the distance alone.

    Enters at: scores.
    Args:
        heads: heads of the model.
        hidden: width of the hidden layer.
        c: initial c: how soon the logarithm flattens [1 / token].
        threshold: initial L [tokens].
        threshold_mode: how L enters: `max(p_i, L)` as in the paper, `sqrt` for max(p_i, sqrt(L)), `min` for min(p_i,
            L), at least 1.
        future_divisor: divisor for future keys. `query`: the query position, as in the published code; the normalised
            distance may then exceed 1. `max`: the larger of both positions; it never exceeds 1.
        biases: whether the linear layers have biases.
    Raises:
        ValueError: an unknown option, or a size that is not positive.
    Source: Li et al. 2024, FIRE, with the code in its appendix, https://arxiv.org/abs/2310.04418
    Departs: nowhere; L is trained as a multiple of `threshold`, as there.
    """

    shift_invariant = False
    citation = """@inproceedings{li2024functional,
  title = {Functional Interpolation for Relative Positions improves Long Context Transformers},
  author = {Li, Shanda and You, Chong and Guruganesh, Guru and Ainslie, Joshua and Ontanon, Santiago and
            Zaheer, Manzil and Sanghai, Sumit and Yang, Yiming and Kumar, Sanjiv and Bhojanapalli, Srinadh},
  booktitle = {International Conference on Learning Representations},
  year = {2024},
  url = {https://arxiv.org/abs/2310.04418}
}"""

    def __init__(
        self,
        *,
        heads: int,
        hidden: int = 32,
        c: float = 0.1,
        threshold: float = 512.0,
        threshold_mode: ThresholdMode = "max",
        future_divisor: FutureDivisor = "query",
        biases: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("heads", heads), ("hidden", hidden), ("c", c), ("threshold", threshold)):
            need_positive(name, value)
        need_known("threshold_mode of fire", threshold_mode, ("max", "sqrt", "min"))
        need_known("future_divisor of fire", future_divisor, ("query", "max"))
        self.threshold, self.threshold_mode, self.future_divisor = threshold, threshold_mode, future_divisor
        self.c = nn.Parameter(torch.tensor([float(c)]))
        self.multiple = nn.Parameter(torch.ones(1))
        self.inner = nn.Linear(1, hidden, bias=biases)
        self.outer = nn.Linear(hidden, heads, bias=biases)

    def bias(self, where: Geometry) -> Bias:
        far = distance(where.offset, dtype=torch.float64)
        normalised = self._log(far) / (self._log(self._length(where)) + EPS)
        wide = torch.promote_types(self.c.dtype, torch.float32)
        return scalar_relu_mlp(normalised, self.inner, self.outer, wide)

    def log_bias(self, where: Geometry) -> LogBias | None:
        if self.future_divisor == "max" and not where.is_causal:
            # the divisor of a future key is its own
            return None
        shares = 1 / (self._log(self._length(where, causal=True)) + EPS)
        return LogBias(in_float64(self.c).abs().reshape(1), shares[..., 0], mlp_pieces(self.inner, self.outer))

    def _length(self, where: Geometry, *, causal: bool = False) -> Float[Tensor, "#b i #j"]:
        """Return the length by which distances are normalised [tokens]; if `causal`, that of past keys."""
        place = in_float64(where.q_pos[..., 0])[:, :, None]
        if self.future_divisor == "max" and not causal:
            place = torch.maximum(place, in_float64(where.k_pos[..., 0])[:, None])
        limit = (in_float64(self.multiple) * self.threshold).abs()
        if self.threshold_mode == "min":
            # without a causal mask, a query at position 0 would divide the distance to future keys by zero
            return torch.minimum(place, limit).clamp(min=1)
        return torch.maximum(place, limit.sqrt() if self.threshold_mode == "sqrt" else limit)

    def _log(self, x: Float[Tensor, "#b i #j"]) -> Float[Tensor, "#b i #j"]:
        return torch.log1p((in_float64(self.c) * x).abs())
