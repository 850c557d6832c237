"""A penalty that grows with distance."""

from typing import Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from ordinate.checks import need, need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.distance import Metric, distance
from ordinate.ops.slopes import Rule, slopes
from ordinate.scheme import Scheme
from ordinate.shapes import Bias

Sides = Literal["both", "signed", "halves", "apart"]
# no weight is left to a key behind it, unless there is no other; -inf would make a row without others NaN
WALL = 2.0**15


class Alibi(Scheme):
    """Lower each score by the distance times a slope that belongs to the head.

        bias(h, i, j) = -slope_h * |p_i - p_j|,     slope_h = 2^(-8h/H),  h = 1 .. H

    Far tokens fade at a rate of each head's own, so lengths never seen in training change little.

    Enters at: scores.
    Args:
        heads: heads of the model, H.
        rule: the slopes where H is no power of two. `paper`: those of the power of two below, then every other one of
            twice that power; `even`: 2^(-8h/H) all the same; `span`: evenly spread exponents from 1 to 8 at any H.
        flattest: the 8 in the formula: the flattest slope is 2^-flattest.
        sloped: how many heads have a slope, the first ones; the others see no position. None: all.
        sides: `both` treats past and future alike. `signed`: -slope_h * (p_i - p_j), so that keys ahead gain; this is
            what adding slope_h * p_j to every score means. `halves`: the first half of the sloped heads looks back,
            the other half ahead, with the same slopes. `apart`: two slopes a head, past and future, both trained.
        learned: train the slopes, as logarithms, born as the rule says.
        metric: what distance is where there are two axes.
    Raises:
        ValueError: an option that is unknown, has no effect, or does not fit the heads.
    Source: Press et al. 2022, Train Short, Test Long, section 3, https://arxiv.org/abs/2108.12409, slopes for any H
        from its published code; sides from its authors' answer in ofirpress/attention_with_linear_biases#5; two axes
        as in data2vec 2.0 (fairseq).
    Departs: the paper is causal. `halves` leaves a head that finds no key on its side all keys of the other alike;
        published code gives NaN there. Published code for `apart` bears slopes at random, of either sign.
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
        rule: Rule = "paper",
        flattest: float = 8.0,
        sloped: int | None = None,
        sides: Sides = "both",
        learned: bool = False,
        metric: Metric = "euclidean",
    ) -> None:
        super().__init__()
        need_positive("heads", heads)
        need_positive("flattest", flattest)
        need_known("rule of alibi", rule, ("paper", "even", "span"))
        need_known("way of alibi to treat sides", sides, ("both", "signed", "halves", "apart"))
        need_known("metric", metric, ("euclidean", "manhattan", "chebyshev"))
        count = heads if sloped is None else sloped
        need(0 < count <= heads, "sloped heads are some of the heads", f"got {count} of {heads}", f"1 to {heads}")
        even = sides != "halves" or count % 2 == 0
        need(even, "halves need an even number of sloped heads", f"got {count}", "set sloped to an even number")
        trained = sides != "apart" or learned
        need(trained, "two slopes a head are trained", "got learned=False", "add learned=True, or take other sides")
        self.heads, self.sides, self.metric = heads, sides, metric
        # two axes have no past and no future
        self.axes = (1, 2) if sides == "both" else (1,)
        first = slopes(count // 2 if sides == "halves" else count, rule, flattest)
        self.born = first * 2 if sides == "halves" else first
        if learned:
            rows = 2 if sides == "apart" else 1
            self.log_slopes = nn.Parameter(torch.tensor([self.born] * rows).log())

    @property
    def slopes(self) -> list[float]:
        """The slope of each head, towards the past where there are two [nats a token]; flash-attention takes them."""
        rest = [0.0] * (self.heads - len(self.born))
        return (self.log_slopes[0].double().exp().tolist() if self._learned else self.born) + rest

    @property
    def _learned(self) -> bool:
        return "log_slopes" in self._parameters

    def bias(self, where: Geometry) -> Bias:
        """The penalty for each head, query and key."""
        offset = where.offset
        dtype = torch.promote_types(self.log_slopes.dtype, torch.float32) if self._learned else torch.float32
        far = distance(offset, self.metric, dtype=dtype)[:, None]
        behind = offset[..., 0][:, None]
        if self.sides == "signed":
            far = far * behind.sign()
        bias = -self._rates(far, behind) * far
        if self.sides == "halves":
            ahead = torch.arange(len(self.born), device=far.device)[:, None, None] >= len(self.born) // 2
            bias = bias.masked_fill(torch.where(ahead, behind > 0, behind < 0), -WALL)
        rest = self.heads - len(self.born)
        return nn.functional.pad(bias, (0, 0, 0, 0, 0, rest)) if rest else bias

    def _rates(self, far: Float[Tensor, "#b 1 i j"], behind: Real[Tensor, "#b 1 i j"]) -> Float[Tensor, "..."]:
        """The slope of each sloped head, or of each pair where past and future have their own."""
        if not self._learned:
            return torch.tensor(self.born, dtype=far.dtype, device=far.device)[:, None, None]
        rates = self.log_slopes.to(far.dtype).exp()[..., None, None]
        return torch.where(behind < 0, rates[1], rates[0]) if self.sides == "apart" else rates[0]
