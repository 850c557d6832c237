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

USUAL_LENGTHS = {"llama4": 8192, "ministral": 16_384}
"""The trained length of the forms whose factor grows by steps."""


class LogLength(Scheme):
    """Scale each query by the logarithm of the number of tokens it attends to, against attention dilution.

        su:     q -> q * log(n)/log(L)              qwen:    q -> q * max(1, log(n)/log(L))
        plain:  q -> q * log(n)                     ssmax:   q -> q * s_h * log(n),  s trained
        llama4: q -> q * (1 + b log(1 + floor(n/L)))      ministral: q -> q * (1 + b log(1 + floor((n - 1)/L)))

    n = position + 1 is the number of tokens that a query attends to under a causal mask, itself included. The softmax
    of n scores of constant variance flattens as n grows; a factor of log(n) compensates. This encodes little about
    positions: combine it with another scheme (rope+log_length).

    Enters at: queries.
    Args:
        heads: heads of the model.
        form: scaling factor: `su` and `plain` scale at all lengths, `qwen`, `llama4` and `ministral` beyond the
            trained length only, `ssmax` has a trained factor for each head and layer.
        trained_length: L [tokens]; of `su`, `qwen` (None: 512), `llama4` (None: 8192) and `ministral` (None: 16384).
        init_scale: initial s of `ssmax`; None: 0.168, which is 1 over the mean of log(n) up to n = 1024.
        beta: b of `llama4` and `ministral`; None: 0.1.
    Raises:
        ValueError: a negative position, or an option that has no effect in this form.
    Source: Su 2021, https://kexue.fm/archives/8823; Chiang and Cholak 2022 (`plain`),
        https://aclanthology.org/2022.acl-long.527; Nakanishi 2025 (`ssmax`), https://arxiv.org/abs/2501.19399; code
        of Qwen, of Llama 4 and of Ministral 3.
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
        form: Literal["su", "qwen", "plain", "ssmax", "llama4", "ministral"] = "su",
        trained_length: int | None = None,
        init_scale: float | None = None,
        beta: float | None = None,
    ) -> None:
        super().__init__()
        trains, stepped = form == "ssmax", form in ("llama4", "ministral")
        bounded = stepped or form in ("su", "qwen")
        for name, value, used in (
            ("trained_length", trained_length, bounded),
            ("init_scale", init_scale, trains),
            ("beta", beta, stepped),
        ):
            came = f"got {value} with form={form!r}, where it has no effect"
            need(value is None or used, f"{name} is not used by this form", came, "leave it out")
        self.length = USUAL_LENGTHS.get(form, 512) if trained_length is None else trained_length
        self.beta = 0.1 if beta is None else beta
        need(math.isfinite(self.beta), "beta must be a finite number", f"got {beta}", "0.1 is usual")
        # the logarithm of 1 divides
        least = 0 if stepped else 1
        must = f"trained_length must be above {least}"
        need(self.length > least, must, f"got {trained_length}", "give the training length")
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
        if self.form in USUAL_LENGTHS:
            counted = seen if self.form == "llama4" else seen - 1
            return 1 + self.beta * torch.log1p((counted / self.length).floor())
        grown = seen.log()
        if self.form == "ssmax":
            return in_float64(self.sharpness)[:, None, None] * grown
        if self.form == "plain":
            return grown
        relative = grown / math.log(self.length)
        return relative.clamp(min=1) if self.form == "qwen" else relative
