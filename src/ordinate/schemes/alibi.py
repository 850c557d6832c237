"""ALiBi: attention with linear biases (Press et al., 2022)."""

from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Positions
from ordinate.core.tensors import in_float64
from ordinate.ops.bfloat16_rounding import rounded, rounded_number
from ordinate.ops.distance import Metric, distance
from ordinate.ops.slopes import SlopeRule, alibi_slopes
from ordinate.schemes._scheme import Scheme

Direction = Literal["both", "signed", "split_heads", "separate"]
# no weight is left to a key behind it, unless there is no other; -inf would make a row without others NaN
MASK_PENALTY = 2.0**15


class Alibi(Scheme):
    """ALiBi: add a bias to the scores that falls linearly with distance, with a slope for each head.

        bias(h, i, j) = -slope_h * |p_i - p_j|,     slope_h = 2^(-8h/H),  h = 1 .. H

    The attention weight of distant tokens decays at a known rate, so sequences longer than in training change little.

    Enters at: scores.
    Args:
        heads: heads of the model, H.
        rule: slopes for H that is not a power of two. `paper`: those of the next lower power of two, then every other
            slope of the next higher one; `even`: 2^(-8h/H) for any H; `span`: evenly spaced exponents from 1 to 8 for
            any H.
        min_slope_exponent: the 8 in the formula: the smallest slope is 2^-min_slope_exponent.
        sloped_heads: number of heads with a slope, from the first on; the others have no bias. None: all.
        direction: `both`: the same bias for past and future keys. `signed`: -slope_h * (p_i - p_j), so that future
            keys gain; equivalent to adding slope_h * p_j to each score. `split_heads`: the first half of the sloped
            heads attends to past keys, the other half to future keys, with the same slopes. `separate`: each head has
            two trained slopes, for past and future keys.
        trainable: whether the slopes are trained, as logarithms, initialised by `rule`.
        metric: distance metric for two position axes, which direction `both` alone takes.
        bfloat16_factor: c in -c * |r_h(p_i) - r_h(p_j)|, in place of -slope_h * |p_i - p_j|, and likewise in other
            directions, with r_h(p) = bfloat16(bfloat16(slope_h) * bfloat16(p)), as Falcon has it with c =
            1 / sqrt(head width). It depends on where positions start. None: nothing is rounded.
    Raises:
        ValueError: an option that is unknown, has no effect, or does not fit the heads.
    Source: Press et al. 2022, Train Short, Test Long, section 3, https://arxiv.org/abs/2108.12409, slopes for any H
        from its published code; directions from its authors' answer in ofirpress/attention_with_linear_biases#5; two
        axes as in data2vec 2.0 (fairseq); rounding as in transformers' Falcon.
    Departs: the paper is causal. With `split_heads`, a query without keys on the side of its head attends equally to
        all visible keys; published code gives NaN there. Published code for `separate` initialises slopes randomly,
        with either sign.
    """

    axes = (1, 2)
    shift_invariant = True
    citation = """@inproceedings{press2022train,
  title = {Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation},
  author = {Press, Ofir and Smith, Noah A. and Lewis, Mike},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  url = {https://arxiv.org/abs/2108.12409}
}"""

    def __init__(
        self,
        *,
        heads: int,
        rule: SlopeRule = "paper",
        min_slope_exponent: float = 8.0,
        sloped_heads: int | None = None,
        direction: Direction = "both",
        trainable: bool = False,
        metric: Metric = "euclidean",
        bfloat16_factor: float | None = None,
    ) -> None:
        super().__init__()
        need_positive("heads", heads)
        need_positive("min_slope_exponent", min_slope_exponent)
        count = heads if sloped_heads is None else sloped_heads
        _check_options(rule, direction, metric, trainable)
        _check_sloped(count, heads, direction)
        _check_rounding(bfloat16_factor, metric, trainable)
        self.heads, self.direction, self.metric, self._factor = heads, direction, metric, bfloat16_factor
        # past and future are defined on one axis only, and each position is rounded by itself
        self.axes = (1, 2) if direction == "both" and bfloat16_factor is None else (1,)
        if bfloat16_factor is not None:
            self.shift_invariant = False
        first = alibi_slopes(count // 2 if direction == "split_heads" else count, rule, min_slope_exponent)
        self.initial_slopes = first * 2 if direction == "split_heads" else first
        self._trainable = trainable
        if trainable:
            rows = 2 if direction == "separate" else 1
            self.log_slopes = nn.Parameter(torch.tensor([self.initial_slopes] * rows).log())

    @property
    def slopes(self) -> list[float]:
        """Slope of each head, for past keys if there are two [nats per token]: flash-attention's `alibi_slopes`.

        With `bfloat16_factor`, the factor times the rounded slope, without the rounding of positions and products.
        """
        rest = [0.0] * (self.heads - len(self.initial_slopes))
        if self._factor is not None:
            return [self._factor * rounded_number(slope) for slope in self.initial_slopes] + rest
        return (in_float64(self.log_slopes[0]).exp().tolist() if self._trainable else self.initial_slopes) + rest

    def bias(self, where: Geometry) -> Bias:
        bias = -self._penalties(where)
        if self.direction == "split_heads":
            behind = where.offset[..., 0][:, None]
            ahead = (
                torch.arange(len(self.initial_slopes), device=bias.device)[:, None, None]
                >= len(self.initial_slopes) // 2
            )
            bias = bias.masked_fill(torch.where(ahead, behind > 0, behind < 0), -MASK_PENALTY)
        rest = self.heads - len(self.initial_slopes)
        return nn.functional.pad(bias, (0, 0, 0, 0, 0, rest)) if rest else bias

    def linear_bias(self, where: Geometry) -> Float[Tensor, "2 h"] | None:
        if self.direction == "split_heads" or self._factor is not None:
            return None
        if self._trainable:
            slopes = self.log_slopes.to(torch.promote_types(self.log_slopes.dtype, torch.float32)).exp().expand(2, -1)
        else:
            slopes = numbers_beside(where.q_pos, self.initial_slopes, self.bias_dtype).expand(2, -1)
        if self.direction == "signed":
            slopes = torch.stack([slopes[0], -slopes[1]])
        rest = self.heads - len(self.initial_slopes)
        return nn.functional.pad(slopes, (0, rest)) if rest else slopes

    def _penalties(self, where: Geometry) -> Float[Tensor, "#b h i j"]:
        """What the bias of the sloped heads subtracts from the scores."""
        if self._factor is not None:
            queries, keys = (self._rounded_products(pos) for pos in (where.q_pos, where.k_pos))
            gap = self._factor * (queries[..., :, None] - keys[..., None, :])
            return gap if self.direction == "signed" else gap.abs()
        offset = where.offset
        dtype = torch.promote_types(self.log_slopes.dtype, torch.float32) if self._trainable else self.bias_dtype
        far = distance(offset, self.metric, dtype=dtype)[:, None]
        behind = offset[..., 0][:, None]
        if self.direction == "signed":
            far = far * behind.sign()
        return self._rates(far, behind) * far

    def _rounded_products(self, pos: Positions) -> Float[Tensor, "#b h n"]:
        """The slope of each sloped head times each position: both, and the product, rounded to bfloat16."""
        slopes = rounded(numbers_beside(pos, self.initial_slopes, torch.float32))
        return rounded(slopes[:, None] * rounded(pos[..., 0].float())[:, None]).to(self.bias_dtype)

    def _rates(self, far: Float[Tensor, "#b 1 i j"], behind: Real[Tensor, "#b 1 i j"]) -> Float[Tensor, "..."]:
        """The slope of each sloped head, or of each pair where past and future have their own."""
        if not self._trainable:
            return numbers_beside(far, self.initial_slopes, far.dtype)[:, None, None]
        rates = self.log_slopes.to(far.dtype).exp()[..., None, None]
        return torch.where(behind < 0, rates[1], rates[0]) if self.direction == "separate" else rates[0]


def _check_options(rule: SlopeRule, direction: Direction, metric: Metric, trainable: bool) -> None:
    need_known("rule of alibi", rule, ("paper", "even", "span"))
    need_known("direction of alibi", direction, ("both", "signed", "split_heads", "separate"))
    need_known("metric", metric, ("euclidean", "manhattan", "chebyshev"))
    trained = direction != "separate" or trainable
    remedy = "add trainable=True, or another direction"
    need(trained, "two slopes a head are trained", "got trainable=False", remedy)
    must = "metric has an effect with direction='both' only, since the others take one axis"
    came = f"got metric={metric!r} with direction={direction!r}"
    need(metric == "euclidean" or direction == "both", must, came, "leave one of them out")


def _check_rounding(factor: float | None, metric: Metric, trainable: bool) -> None:
    """Raise unless the rounded form has the other options."""
    if factor is None:
        return
    need_positive("bfloat16_factor", factor)
    remedy = "leave one of them out"
    must = "bfloat16_factor rounds fixed slopes, without gradients"
    need(not trainable, must, f"got bfloat16_factor={factor} with trainable=True", remedy)
    must = "bfloat16_factor rounds positions on one axis, on which every metric is the same"
    need(metric == "euclidean", must, f"got bfloat16_factor={factor} with metric={metric!r}", remedy)


def _check_sloped(count: int, heads: int, direction: Direction) -> None:
    """Raise unless so many heads, of all, can have slopes."""
    must = "sloped_heads must be some of the heads"
    need(0 < count <= heads, must, f"got {count} of {heads}", f"give 1 to {heads}")
    even = direction != "split_heads" or count % 2 == 0
    wanted = "split_heads needs an even number of sloped heads"
    need(even, wanted, f"got {count}", "set sloped_heads to an even number")
