"""Options of a mixture of experts."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ordinate.core.checks import need, need_fraction, need_known, need_positive, need_type, need_whole
from ordinate.core.option_values import normalise_fields
from ordinate.models.feedforward import FeedForwardKind

Scores = Literal["softmax", "sigmoid", "sparsemixer"]
"""What the scores of the experts are made of the outputs of the router with."""
GroupScores = Literal["pair", "best"]
"""What groups of experts are chosen by: the sum of their two largest scores, or their largest."""
Combination = Literal["sum", "average", "normed_sum"]
"""How the output of the experts and that of the shared network are combined."""
# of gpt-oss, with which the gate is nearly a GELU
SLOPE = 1.702
# of Phi-3.5-MoE
JITTER = 0.01
# sigmoids of large negative numbers would sum up to 0
SUM_EPS = 1e-20


@dataclass(frozen=True)
class ExpertOptions:
    """Options of a mixture of experts.

    Args:
        count: number of experts.
        chosen: experts of each token.
        normalise: whether the weights of the chosen experts are divided by their sum (Mixtral).
        limit: with it, `swiglu` is that of gpt-oss, which clamps both halves of the hidden layer: see
            `Experts`; None: it is not.
        slope: the slope of the sigmoid in it; has an effect with `limit` only.
        dense_layers: layers, counted from 0, with a single feed-forward network in place of the experts.
        dense_hidden: hidden width of that one; None: as of an expert.
        scores: what makes the scores, whose largest are chosen and whose numbers are the weights, of the outputs of
            the router: `softmax` over all experts, or the `sigmoid` of each (DeepSeek-V3, GLM-4.5). `sparsemixer`:
            the best expert, then the best of the others, whose weights are each from a softmax over those that are
            near the best (Phi-3.5-MoE); see `near_best`.
        choice_bias: whether a number for each expert, which no gradient trains, is added to its score for the choice
            only (DeepSeek-V3).
        groups: equal parts of the experts, of which some are chosen first (DeepSeek-V2 and V3); 1: there are none.
        chosen_groups: groups of each token, among whose experts its own are.
        scale: factor of the weights (DeepSeek-V3).
        shared_hidden: hidden width of a feed-forward network that every token has beside its experts (Qwen2-MoE);
            None: there is none.
        shared_gate: whether its output is multiplied by the sigmoid of a linear function of the token (Qwen2-MoE).
        logit_softcap: soft cap of the outputs of the router, cap tanh(output / cap) (Laguna); None: no cap.
        combined: the output is the `sum` of that of the experts and of that network, or their `average` (Command A+).
            `normed_sum`: each of the two has a norm of its own before and after it: see `NormedExperts` (Gemma 4).
        group_scores: the chosen groups have the largest sums of their two largest scores, `pair` (DeepSeek-V3), or
            the largest scores, `best` (DeepSeek-V2).
        jitter: half of the share of its logit by which others may fall behind the best and still be near it, of
            `sparsemixer`.
        latent: columns of what the experts read and write, between which and those of the model there are two linear
            layers that all experts share (Nemotron-H); None: the experts read and write tokens.
        sum_eps: number added to the sum of the weights by which `normalise` divides them (1e-6 in LFM2).
        wide_router: whether the router is computed in float32 at least, as that of sigmoids always is (DeepSeek-V2).
        weighted_inputs: whether the weights multiply what the experts read, not what they return (Llama 4).
        router_norm_eps: with it, the router reads tokens that an RMSNorm without weights, with this epsilon, has
            normalised, times a learned factor of each column, divided by the root of the width (Gemma 4); None: the
            tokens as they are.
        expert_factors: whether the weight of each expert is multiplied by a learned factor of its own (Gemma 4).

    Raises:
        ValueError: sizes that are not positive, groups without the experts of a token, or an option without effect.
    """

    count: int
    chosen: int = 2
    normalise: bool = True
    limit: float | None = None
    slope: float = SLOPE
    dense_layers: tuple[int, ...] = ()
    dense_hidden: int | None = None
    scores: Scores = "softmax"
    choice_bias: bool = False
    groups: int = 1
    chosen_groups: int = 1
    scale: float = 1.0
    shared_hidden: int | None = None
    shared_gate: bool = False
    group_scores: GroupScores = "pair"
    wide_router: bool = False
    jitter: float = JITTER
    combined: Combination = "sum"
    logit_softcap: float | None = None
    latent: int | None = None
    sum_eps: float = SUM_EPS
    weighted_inputs: bool = False
    router_norm_eps: float | None = None
    expert_factors: bool = False

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name in ("count", "chosen", "dense_hidden", "groups", "chosen_groups", "shared_hidden", "latent"):
            if getattr(self, name) is not None:
                need_whole(name, getattr(self, name))
                need_positive(name, getattr(self, name))
        need_known("scores", self.scores, get_args(Scores))
        need_known("group_scores", self.group_scores, get_args(GroupScores))
        self._check_choice()
        for name in ("limit", "logit_softcap"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        for name, usual in (("slope", SLOPE), ("scale", 1.0)):
            value = getattr(self, name)
            need(math.isfinite(value), f"{name} must be a finite number", f"got {value}", f"{usual} is usual")
        self._check_sparse()
        need_fraction("sum_eps", self.sum_eps)
        must = "sum_eps has an effect with normalise only"
        came = f"got sum_eps={self.sum_eps}, normalise={self.normalise}"
        need(self.normalise or self.sum_eps == SUM_EPS, must, came, "leave it out")
        must = "slope has an effect with a limit only"
        need(self.limit is not None or self.slope == SLOPE, must, f"got slope={self.slope}", "leave it out")
        usual = "dense_hidden has an effect with dense_layers only"
        need(bool(self.dense_layers) or self.dense_hidden is None, usual, "got no dense_layers", "leave it out")
        self._check_shared()

    def _check_choice(self) -> None:
        """Raise a ValueError unless a token has its experts among those of its groups."""
        must, came = "a token has at most as many experts as there are", f"got chosen={self.chosen} of {self.count}"
        need(self.chosen <= self.count, must, came, "give fewer")
        size, rest = divmod(self.count, self.groups)
        pairs = self.group_scores == "pair"
        fewest = 2 if pairs else 1
        must = f"experts in groups must be {'at least two in each, and ' * pairs}as many in each"
        came = f"got count={self.count} in groups={self.groups}"
        need(self.groups == 1 or (not rest and size >= fewest), must, came, "give another number of groups")
        must, came = "a token has at most as many groups as there are", f"got {self.chosen_groups} of {self.groups}"
        need(self.chosen_groups <= self.groups, must, came, "give fewer chosen_groups")
        must = "the chosen_groups must have the experts of a token"
        came = f"got chosen={self.chosen} of {self.chosen_groups} groups of {size}"
        need(self.chosen <= self.chosen_groups * size, must, came, "give more chosen_groups")
        must = "group_scores has an effect with several groups, some of them chosen, only"
        came = f"got {self.group_scores!r} with {self.chosen_groups} of {self.groups} groups"
        need(pairs or self.chosen_groups < self.groups, must, came, "leave it out")
        must = "wide_router has an effect with scores='softmax' only"
        need(not self.wide_router or self.scores == "softmax", must, f"got {self.scores!r}", "leave it out")
        if self.router_norm_eps is not None:
            need_fraction("router_norm_eps", self.router_norm_eps)
            must, came = "router_norm_eps needs scores='softmax' without wide_router", f"got {self.scores!r}"
            plain = self.scores == "softmax" and not self.wide_router
            need(plain, must, f"{came}, wide_router={self.wide_router}", "leave one of them out")

    def _check_sparse(self) -> None:
        """Raise a ValueError unless the options fit the scores `sparsemixer`, or those have no effect."""
        sparse, given = self.scores == "sparsemixer", (self.chosen, self.normalise, self.choice_bias, self.groups)
        must = "scores='sparsemixer' needs chosen=2, normalise=False, no choice_bias and no groups"
        came = f"got chosen={self.chosen}, normalise={self.normalise}, choice_bias={self.choice_bias}, "
        came += f"groups={self.groups}"
        need(not sparse or given == (2, False, False, 1), must, came, "leave them out, or choose other scores")
        must = "jitter must be a number of at least 0, and has an effect with scores='sparsemixer' only"
        fits = self.jitter >= 0 if sparse else self.jitter == JITTER
        need(fits and math.isfinite(self.jitter), must, f"got {self.jitter}, scores={self.scores!r}", "leave it out")

    def _check_shared(self) -> None:
        """Raise a ValueError unless the options of the shared network have an effect, and it can be computed."""
        must = "shared_gate has an effect with shared_hidden only"
        need(self.shared_hidden is not None or not self.shared_gate, must, "got shared_gate=True", "leave it out")
        need_known("combined", self.combined, get_args(Combination))
        must = "combined has an effect with shared_hidden only"
        need(self.shared_hidden is not None or self.combined == "sum", must, f"got {self.combined!r}", "leave it out")
        must, came = "a shared network has no limit", f"got limit={self.limit}, shared_hidden={self.shared_hidden}"
        need(self.shared_hidden is None or self.limit is None, must, came, "leave one of them out")

    def with_defaults(self, hidden: int) -> "ExpertOptions":
        """Return a copy with all defaults filled in, for this hidden width of an expert."""
        wide = hidden if self.dense_layers and self.dense_hidden is None else self.dense_hidden
        return replace(self, dense_layers=tuple(sorted(set(self.dense_layers))), dense_hidden=wide)


def check_experts(options: ExpertOptions | None, layers: int, kind: FeedForwardKind, bias: Collection[str]) -> None:
    """Check that a model can have these experts, and that the biases of its feed-forward have an effect.

    Args:
        options: its experts; None: none.
        layers: number of layers.
        kind: activation function, or gated linear unit.
        bias: what has biases.

    Raises:
        TypeError: experts of another type.
        ValueError: a layer that does not exist, no layer with experts, or an option without effect.
    """
    need_type("experts", options, ExpertOptions, "give ExpertOptions(...), or leave it out")
    place = "router" if options is None else "feedforward_in"
    must = f"bias={place!r} is of a model with{'' if options is None else 'out'} experts"
    need(place not in bias, must, f"got experts={options}", "leave one of them out")
    if options is None:
        return
    known = all(isinstance(layer, int) and 0 <= layer < layers for layer in options.dense_layers)
    must = f"dense_layers must be some of the layers from 0 to {layers - 1}, and leave one for the experts"
    some = len(set(options.dense_layers)) < layers
    need(known and some, must, f"got {options.dense_layers}", "correct them, or leave experts out")
    must = "experts with a limit need feedforward='swiglu'"
    need(options.limit is None or kind == "swiglu", must, f"got {kind!r}", "give it, or leave the limit out")
