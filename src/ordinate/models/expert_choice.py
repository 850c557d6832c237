"""The choice of the experts of each token, and their weights."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.models.expert_options import ExpertOptions, GroupScores, Scores
from ordinate.ops.linear_layer import Linear, linear
from ordinate.ops.rms_norm import RMSNorm

Each = Float[Tensor, "tokens experts"]


class WideLinear(Linear):
    """A linear layer that is computed in float32 at least (with autocast in its type)."""

    def forward(self, input: Float[Tensor, "*any inner"]) -> Float[Tensor, "*any outer"]:
        """Return W x + b, in float32 for 16-bit numbers."""
        wide = torch.promote_types(input.dtype, torch.float32)
        return linear(input.to(wide), self.weight.to(wide), None if self.bias is None else self.bias.to(wide))


class NormedLinear(Linear):
    """A linear layer of normalised tokens (the router of Gemma 4): W (f * x / rms(x)) / sqrt(inner), with learned f.

    Args:
        inner: columns of the input.
        outer: columns of the output.
        bias: whether it has a bias.
        eps: epsilon of the norm.
    """

    def __init__(self, inner: int, outer: int, *, bias: bool, eps: float) -> None:
        super().__init__(inner, outer, bias=bias)
        self.norm, self.factors = RMSNorm(inner, eps=eps, elementwise_affine=False), nn.Parameter(torch.ones(inner))

    def forward(self, input: Float[Tensor, "*any inner"]) -> Float[Tensor, "*any outer"]:
        """Return the linear function of the normalised input."""
        return super().forward(self.norm(input) * self.factors * input.shape[-1] ** -0.5)


def capped(logits: Each, cap: float | None) -> Each:
    """Return cap tanh(logits / cap) of outputs of the router; None: the outputs as they are."""
    return logits if cap is None else cap * (logits / cap).tanh()


def softmax_scores(logits: Each) -> Each:
    """Return the softmax over all experts, in float32 at least: in 16 bits, shares that differ little were equal."""
    return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


GROUPED: Mapping[GroupScores, int] = {"pair": 2, "best": 1}
"""How many of its largest scores a group is chosen by."""


def choose(
    scores: Each, bias: Float[Tensor, " experts"] | None, options: ExpertOptions
) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"]]:
    """Return the weights of the chosen experts of each token, and which they are.

    Args:
        scores: of each expert for each token.
        bias: added to the scores for the choice only; None: none.
        options: how many are chosen, and how their scores become weights.
    """
    ranks = scores.detach() if bias is None else scores.detach() + bias
    chosen = _in_groups(ranks, options).topk(options.chosen).indices
    weights = scores.gather(-1, chosen)
    if options.normalise:
        weights = weights / (weights.sum(-1, keepdim=True) + options.sum_eps)
    return weights if options.scale == 1 else weights * options.scale, chosen


def near_best(
    logits: Each, bias: Float[Tensor, " experts"] | None, options: ExpertOptions
) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"]]:
    """Return the weights of the best expert of each token and of the best of the others, and which they are.

        p_e = exp(l_e) / sum of exp(l_f) over the f with (l_e - l_f) / max(|l_f|, l_e) <= 2 jitter

    e has the largest l; for the second expert the f are those but the first.

    Args:
        logits: l, of each expert for each token.
        bias: none.
        options: with `jitter`.

    Source: Liu et al. 2024, GRIN: GRadient-INformed MoE, https://arxiv.org/abs/2409.12136, evaluation.
    """
    first, weight = _best(logits, logits, options.jitter)
    second, other = _best(logits.scatter(-1, first, -torch.inf), logits, options.jitter)
    weights = torch.cat([weight, other], -1)
    return weights if options.scale == 1 else weights * options.scale, torch.cat([first, second], -1)


def _best(left: Each, logits: Each, jitter: float) -> tuple[Int[Tensor, "tokens 1"], Float[Tensor, "tokens 1"]]:
    """Return the best of the experts that are left, and its share among those near it."""
    best, place = left.detach().max(-1, keepdim=True)
    sizes = logits.detach().abs().clamp(min=best)
    far = (best - logits.detach()) / sizes > 2 * jitter
    return place, left.masked_fill(far, -torch.inf).softmax(-1).gather(-1, place)


def wide(logits: Each) -> Each:
    """Return outputs of the router, in float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


SCORES: Mapping[Scores, tuple[type[Linear], Callable[[Each], Each], Callable[..., tuple[Tensor, Tensor]]]] = {
    "softmax": (Linear, softmax_scores, choose),
    "sigmoid": (WideLinear, torch.sigmoid, choose),
    "sparsemixer": (Linear, wide, near_best),
}
"""The kind of router for each kind of scores, what makes them of its outputs, and what chooses experts by them."""


def _in_groups(ranks: Each, options: ExpertOptions) -> Each:
    """Return ranks of minus infinity for experts outside of the chosen groups, and those of the others."""
    if options.chosen_groups == options.groups:
        return ranks
    parts = ranks.unflatten(-1, (options.groups, -1))
    counted = GROUPED[options.group_scores]
    best = parts.topk(counted).values.sum(-1).topk(options.chosen_groups).indices
    left = torch.ones_like(parts[..., 0], dtype=torch.bool).scatter(-1, best, False)
    return parts.masked_fill(left[..., None], -torch.inf).flatten(-2)
