"""Attention temperature that depends on the logarithm of the position (log-n scaling, Scalable-Softmax)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Positions, Queries
from ordinate.core.tensors import in_float64, need_true, on_device
from ordinate.ops.finite_vectors import by_finite_vectors
from ordinate.schemes._scheme import Scheme


class LogLength(Scheme):
    """Scale each query by the logarithm of the number of tokens it attends to, against attention dilution.

        su:     q -> q * log(n)/log(L)              qwen:    q -> q * max(1, log(n)/log(L))
        plain:  q -> q * log(n)                     ssmax:   q -> q * s_h * log(n),  s trained
        llama4: q -> q * (1 + 0.1 log(1 + floor(n/L)))

    n = position + 1 is the number of tokens that a query attends to under a causal mask, itself included. The softmax
    of n scores of constant variance flattens as n grows; a factor of log(n) compensates. This encodes little about
    positions: combine it with another scheme (rope+log_length).

    Enters at: queries.
    Args:
        heads: heads of the model.
        form: scaling factor: `su` and `plain` scale at all lengths, `qwen` and `llama4` beyond the trained length
            only, `ssmax` has a trained factor for each head and layer.
        trained_length: L [tokens]; of `su`, `qwen` (None: 512) and `llama4` (None: 8192).
        init_scale: initial s of `ssmax`; None: 0.168, which is 1 over the mean of log(n) up to n = 1024.
    Raises:
        ValueError: a negative position, or an option that has no effect in this form.
    Source: Su 2021, https://kexue.fm/archives/8823; Chiang and Cholak 2022 (`plain`),
        https://aclanthology.org/2022.acl-long.527; Nakanishi 2025 (`ssmax`), https://arxiv.org/abs/2501.19399; code
        of Qwen and of Llama 4.
    Departs: n is the query position + 1 also with sliding windows and without a causal mask, where it is not the
        number of tokens attended to.
    """

    shift_invariant = False
    citation = """@inproceedings{chiang2022overcoming,
  title = {Overcoming a Theoretical Limitation of Self-Attention},
  author = {Chiang, David and Cholak, Peter},
  booktitle = {Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics},
  year = {2022},
  url = {https://aclanthology.org/2022.acl-long.527}
}"""

    def __init__(
        self,
        *,
        heads: int,
        form: Literal["su", "qwen", "plain", "ssmax", "llama4"] = "su",
        trained_length: int | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__()
        trains, bounded = form == "ssmax", form in ("su", "qwen", "llama4")
        for name, value, used in (("trained_length", trained_length, bounded), ("init_scale", init_scale, trains)):
            came = f"got {value} with form={form!r}, where it has no effect"
            need(value is None or used, f"{name} is not used by this form", came, "leave it out")
        usual = 8192 if form == "llama4" else 512
        self.length = usual if trained_length is None else trained_length
        must = "trained_length must be above 1"
        need(self.length > 1, must, f"got {trained_length}", "give the training length")
        need_positive("heads", heads)
        self.form, self.per_layer = form, trains
        if trains:
            self.sharpness = nn.Parameter(torch.full((heads,), 0.168 if init_scale is None else init_scale))

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError for negative positions, for which the number of tokens is undefined."""
        super().check_positions(pos)
        if pos.numel():
            low = pos.min()
            must = "log_length counts tokens from position 0"
            need_true(low >= 0, must, lambda: f"got {low.item()}", "shift the positions")

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Return the queries times the factor of their positions, computed in float32 or wider."""
        wide = torch.promote_types(q.dtype, torch.float32)
        factor = on_device(self.factor(pos), wide, q.device)

        def scaled(q: Queries) -> Queries:
            return (q.to(wide) * factor).to(q.dtype)

        return by_finite_vectors(scaled, q) if factor.requires_grad else scaled(q)

    def factor(self, pos: Positions) -> Float[Tensor, "#b #h n 1"]:
        """Return the factor of each query, in float64."""
        seen = in_float64(pos[:, None]) + 1
        if self.form == "llama4":
            return 1 + 0.1 * torch.log1p((seen / self.length).floor())
        grown = seen.log()
        if self.form == "ssmax":
            return in_float64(self.sharpness)[:, None, None] * grown
        if self.form == "plain":
            return grown
        relative = grown / math.log(self.length)
        return relative.clamp(min=1) if self.form == "qwen" else relative
