"""Truncation of the distribution from which the next token is sampled: top-k, top-p and their relatives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.core.option_values import normalise_fields

Logits = Float[Tensor, "b vocabulary"]
Mask = Bool[Tensor, "b vocabulary"]
MINUS_INFINITY = float("-inf")
# tokens among which top-H chooses, as in transformers
TOP_H_TOKENS = 100


class TruncationOptions(TypedDict, total=False):
    """Arguments of `Truncation`, by which functions that sample take them one by one."""

    top_h: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None


@dataclass(frozen=True)
class Truncation:
    """Which tokens are sampled, by the names and in the order of transformers; the most probable one always may be.

    H is the entropy [nats] of the distribution that the truncations before leave, p a probability in it.

    Args:
        top_h: the most probable tokens whose share of the entropy, a sum of -p log p, is at most this share of H; of
            the 100 most probable ones. Source: https://arxiv.org/abs/2509.02510
        top_k: the k most probable tokens.
        top_p: nucleus sampling, the smallest set of most probable tokens with at least this total probability.
            Source: Holtzman et al. 2019, https://arxiv.org/abs/1904.09751
        min_p: tokens with at least this share of the largest probability. Source: https://arxiv.org/abs/2407.01082
        typical_p: locally typical sampling, the smallest set of tokens whose -log p is nearest to H with at least
            this total probability. Source: Meister et al. 2022, https://arxiv.org/abs/2202.00666
        epsilon_cutoff: tokens with at least this probability.
        eta_cutoff: tokens with at least the probability min(eta, sqrt(eta) exp(-H)). Source of both cutoffs: Hewitt
            et al. 2022, https://arxiv.org/abs/2210.15191

    Raises:
        ValueError: a top_k of 0 or below, or shares outside of (0, 1].
    """

    top_h: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name, value in self.active.items():
            if name == "top_k":
                need_whole(name, value)
                need(value > 0, "top_k must be above zero", f"got {value}", "give 1 or more")
            else:
                need_positive(name, value)
                need(value <= 1, f"{name} must lie in (0, 1]", f"got {value}", "give a probability")

    @property
    def active(self) -> dict[str, Any]:
        """The truncations, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    def apply(self, logits: Logits) -> Logits:
        """Return the logits, -inf for tokens that are not sampled."""
        kept: Mapping[Callable[[Logits, Any], Mask], float | None] = {
            _top_h: self.top_h,
            _top_k: self.top_k,
            _top_p: self.top_p,
            _min_p: self.min_p,
            _typical_p: self.typical_p,
            _epsilon: self.epsilon_cutoff,
            _eta: self.eta_cutoff,
        }
        for mask, value in kept.items():
            if value is not None:
                logits = logits.masked_fill(~mask(logits, value), MINUS_INFINITY)
        return logits


NO_TRUNCATION = Truncation()


def _top_h(logits: Logits, share: float) -> Mask:
    best = logits.topk(min(TOP_H_TOKENS, logits.shape[-1]))
    total = _entropy_terms(best.values).cumsum(-1)
    kept = total <= share * total[:, -1:]
    kept[:, 0] = True
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best.indices, kept)


def _top_k(logits: Logits, k: int) -> Mask:
    best = logits.topk(min(k, logits.shape[-1])).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best, value=True)


def _top_p(logits: Logits, share: float) -> Mask:
    ordered, order = logits.softmax(-1).sort(descending=True, stable=True)
    return _first_ones(ordered, order, share)


def _min_p(logits: Logits, share: float) -> Mask:
    p = logits.softmax(-1)
    return p >= share * p.amax(-1, keepdim=True)


def _typical_p(logits: Logits, share: float) -> Mask:
    distance = (logits.log_softmax(-1) + _entropy_terms(logits).sum(-1, keepdim=True)).abs()
    order = distance.sort(stable=True).indices
    return _first_ones(logits.softmax(-1).gather(-1, order), order, share)


def _epsilon(logits: Logits, least: float | Float[Tensor, "b 1"]) -> Mask:
    p = logits.softmax(-1)
    return (p >= least) | (p == p.amax(-1, keepdim=True))


def _eta(logits: Logits, eta: float) -> Mask:
    return _epsilon(logits, (-_entropy_terms(logits).sum(-1, keepdim=True)).exp().mul(eta**0.5).clamp(max=eta))


def _first_ones(ordered: Logits, order: Tensor, share: float) -> Mask:
    """Mask of the first tokens in this order that have a total probability of `share`; the first one always."""
    # kept if the tokens before have less together
    kept = ordered.cumsum(-1) - ordered < share
    return torch.zeros_like(kept).scatter(-1, order, kept)


def _entropy_terms(logits: Logits) -> Logits:
    """Terms -p log p of the entropy [nats]; 0 where p is 0."""
    p = logits.softmax(-1)
    return -torch.xlogy(p, p)
