"""Mixture of experts: a feed-forward network of which a router chooses a few parts for each token."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.models.expert_choice import SCORES, NormedLinear, WideLinear, capped
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.feedforward import (
    FEEDFORWARD_KINDS,
    GATED,
    NO_SCALES,
    FeedForward,
    FeedForwardKind,
    make_activation,
)
from ordinate.ops.grouped_linear import grouped_linear
from ordinate.ops.linear_layer import Linear

Rows = Float[Tensor, "tokens width"]


class ExpertLinear(nn.Module):
    """A linear layer for each expert.

    Args:
        count: number of experts.
        inner: columns of the input.
        outer: columns of the output.
        bias: whether each has a bias.
    """

    def __init__(self, count: int, inner: int, outer: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, outer, inner))
        self.bias = nn.Parameter(torch.zeros(count, outer)) if bias else None
        nn.init.normal_(self.weight, std=inner**-0.5)

    def forward(
        self, x: Float[Tensor, "tokens inner"], experts: Int[Tensor, " tokens"]
    ) -> Float[Tensor, "tokens outer"]:
        """Return W x + b of the expert of each row; `experts` is in ascending order."""
        return grouped_linear(x, self.weight, self.bias, experts)


class Experts(nn.Module):
    """Mixture of experts: the weighted sum of the feed-forward networks that a router chooses for each token.

        p = softmax(W_r x + b_r);   y = sum over the chosen e of scale p_e / s * (W_3e (f(W_1e x) * W_2e x))

    The chosen experts have the largest p, and s is the sum of theirs, or 1 without `normalise`. Only they are
    computed. A feed-forward without a gate is W_2e f(W_1e x). With a limit c and a slope a, the hidden layer is

        g sigmoid(a g) * (v + 1),   g = min(W_1e x, c),   v = clamp(W_2e x, -c, c)

    p may be a sigmoid. With a `logit_softcap` c, an output z of the router becomes c tanh(z / c). With a
    `choice_bias` d the chosen experts have the largest p + d, with groups only among the groups with the largest sums
    of their two largest p + d, or, with `group_scores="best"`, the largest p + d. With `scores="sparsemixer"` two
    experts are chosen one after the other, and each has a p of its own: see `near_best`. With `weighted_inputs` an
    expert reads x times its weight, which then multiplies its output no more. With `latent` the experts read A x + a
    in place of x, and y is B times their sum, plus b. A shared network F, a `FeedForward`, adds
    sigmoid(w_s . x) F(x) to y, or F(x) without `shared_gate`; with `combined="average"` the output is half of the
    sum.

    Args:
        kind: f, or a gated linear unit; see `FeedForward`.
        width: columns of the model.
        hidden: width of the hidden layer of an expert.
        options: number of experts and how they are chosen.
        bias: whether the linear layers of the experts, those around them, and the shared network have biases.
        router_bias: whether the router has one.

    Raises:
        ValueError: an unknown kind, or a width that is not positive.
    Source: Shazeer et al. 2017, https://arxiv.org/abs/1701.06538; the choice is that of Jiang et al. 2024, Mixtral of
        Experts, section 2.1, https://arxiv.org/abs/2401.04088; the limit that of OpenAI 2025, gpt-oss, section 2.2,
        https://arxiv.org/abs/2508.10925; sigmoids, groups and bias those of DeepSeek-AI 2024, DeepSeek-V3, section
        2.1.2, https://arxiv.org/abs/2412.19437; the shared network that of Dai et al. 2024, DeepSeekMoE,
        https://arxiv.org/abs/2401.06066; `latent` is an option of the model `NemotronHForCausalLM` of transformers 5,
        `weighted_inputs` how its `Llama4ForCausalLM` computes.
    Departs: no loss that balances the load of the experts, no rule that changes the bias, no capacity and no noise:
        no token is dropped. With `sparsemixer`, experts are the best ones in training too, where the paper draws
        them.
    """

    choice_bias: Float[Tensor, " experts"] | None

    def __init__(
        self,
        kind: FeedForwardKind,
        width: int,
        hidden: int,
        options: ExpertOptions,
        *,
        bias: bool = False,
        router_bias: bool = False,
    ) -> None:
        super().__init__()
        need_known("feedforward", kind, FEEDFORWARD_KINDS)
        need_positive_counts(width=width, hidden=hidden)
        must, came = "combined='normed_sum' needs NormedExperts, which have the norms", "got Experts"
        need(options.combined != "normed_sum", must, came, "build these, or a model")
        self.options, self.gated = options, kind in GATED
        # one for all experts, if it has parameters
        self.activation = make_activation(kind)
        make_router, self.scores, self.choose = SCORES[options.scores]
        make_router = WideLinear if options.wide_router else make_router
        eps = options.router_norm_eps
        make_router = make_router if eps is None else partial(NormedLinear, eps=eps)
        self.router = make_router(width, options.count, bias=router_bias)
        self.factors = nn.Parameter(torch.ones(options.count)) if options.expert_factors else None
        # no gradient trains it
        self.register_buffer("choice_bias", torch.zeros(options.count) if options.choice_bias else None)
        latent = options.latent
        inner = width if latent is None else latent
        self.compress = None if latent is None else Linear(width, inner, bias=bias)
        self.widen = ExpertLinear(options.count, inner, 2 * hidden if self.gated else hidden, bias=bias)
        self.narrow = ExpertLinear(options.count, hidden, inner, bias=bias)
        self.restore = None if latent is None else Linear(inner, width, bias=bias)
        wide = options.shared_hidden
        self.shared = None if wide is None else FeedForward(kind, width, wide, bias=bias)
        self.shared_gate = Linear(width, 1, bias=False) if options.shared_gate else None

    def forward(self, x: Tokens, routed: Tokens | None = None) -> Tokens:
        """Apply to each token the experts that the router chooses for it.

        Args:
            x: token vectors.
            routed: what the router reads of these tokens; None: the token vectors.
        """
        rows = x.flatten(0, -2)
        weights, chosen = self.route(rows if routed is None else routed.flatten(0, -2))
        # rows of the same expert beside each other
        experts, order = chosen.flatten().sort(stable=True)
        read = (rows if self.compress is None else self.compress(rows))[order // self.options.chosen]
        if self.options.weighted_inputs:
            read = read * weights.flatten()[order, None].to(read.dtype)
        made = self.narrow(self.hidden_layer(self.widen(read, experts)), experts)
        back = order.argsort()
        each = made[back].unflatten(0, (-1, self.options.chosen))
        y = (each if self.options.weighted_inputs else each * weights[..., None].to(each.dtype)).sum(1)
        y = (y if self.restore is None else self.restore(y)).unflatten(0, x.shape[:-1])
        if self.shared is None:
            return y
        y = y + self._shared_part(self.shared, x)
        return y / 2 if self.options.combined == "average" else y

    def route(self, rows: Rows) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"]]:
        """Return the weights of the chosen experts of each token, and which they are."""
        logits = capped(self.router(rows), self.options.logit_softcap)
        weights, chosen = self.choose(self.scores(logits), self.choice_bias, self.options)
        return weights if self.factors is None else weights * self.factors[chosen], chosen

    def _shared_part(self, shared: FeedForward, x: Tokens) -> Tokens:
        y = shared(x)
        return y if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * y

    def hidden_layer(self, x: Rows) -> Float[Tensor, "tokens hidden"]:
        """Return the hidden layer of the experts from the output of their first linear layer."""
        if not self.gated:
            return self.activation(x)
        gate, value = x.chunk(2, -1)
        if self.options.limit is None:
            return self.activation(gate) * value
        gate, value = gate.clamp(max=self.options.limit), value.clamp(-self.options.limit, self.options.limit)
        return gate * torch.sigmoid(self.options.slope * gate) * (value + 1)


class NormedExperts(nn.Module):
    """A feed-forward network F and experts beside it, each with a norm before and another after it (Gemma 4).

        y = norm_1(F(norm_2(x))) + norm_3(experts(norm_4(x))),   routed by x

    It reads the residual stream itself.

    Args:
        kind: as in `Experts`.
        width: columns of the model.
        hidden: width of the hidden layer of an expert.
        options: number of experts and how they are chosen, with `shared_hidden`, the hidden width of F.
        norm: builds a norm for a given number of columns.
        bias: what has biases: `feedforward`, `router`.
    Source: `Gemma4TextDecoderLayer` of transformers.
    """

    def __init__(
        self,
        kind: FeedForwardKind,
        width: int,
        hidden: int,
        options: ExpertOptions,
        norm: Callable[[int], nn.Module],
        bias: Collection[str] = (),
    ) -> None:
        super().__init__()
        both = "feedforward" in bias
        self.shared = FeedForward(kind, width, options.shared_hidden or hidden, bias=both)
        bare = replace(options, shared_hidden=None, combined="sum")
        self.experts = Experts(kind, width, hidden, bare, bias=both, router_bias="router" in bias)
        self.shared_norm, self.shared_out_norm, self.norm, self.out_norm = (norm(width) for _ in range(4))

    def forward(self, x: Tokens) -> Tokens:
        """Apply network and experts to each token of the residual stream."""
        shared = self.shared_out_norm(self.shared(self.shared_norm(x)))
        return shared + self.out_norm(self.experts(self.norm(x), routed=x))


def widened(hidden: int, options: ExpertOptions | None) -> tuple[int, ExpertOptions | None]:
    """Return hidden width and experts of a layer whose feed-forward network is twice as wide as that of others.

    Args:
        hidden: hidden width of the others, or of an expert.
        options: experts, of which the network beside them becomes wider; None: there are none.
    """
    if options is None:
        return 2 * hidden, None
    return hidden, replace(options, shared_hidden=2 * (options.shared_hidden or hidden))


def make_feedforward(
    kind: FeedForwardKind,
    width: int,
    hidden: int,
    bias: Collection[str],
    *,
    options: ExpertOptions | None,
    layer: int,
    norm: Callable[[int], nn.Module],
    scales: tuple[float, ...] = NO_SCALES,
) -> FeedForward | Experts | NormedExperts:
    """Build the feed-forward network of a layer, or its experts.

    Args:
        kind: activation function, or gated linear unit.
        width: columns of the model.
        hidden: hidden width, of each expert if there are some.
        bias: what has biases: `feedforward`, `feedforward_in`, `router`.
        options: the experts of the model; None: none.
        layer: the layer, counted from 0.
        norm: builds a norm for a given number of columns, of experts with `combined="normed_sum"`.
        scales: factors of a feed-forward: see `FeedForward`.
    """
    both = "feedforward" in bias
    if options is not None and layer not in options.dense_layers:
        if options.combined == "normed_sum":
            return NormedExperts(kind, width, hidden, options, norm, bias)
        return Experts(kind, width, hidden, options, bias=both, router_bias="router" in bias)
    wide = hidden if options is None or options.dense_hidden is None else options.dense_hidden
    return FeedForward(kind, width, wide, bias=both or "feedforward_in" in bias, out_bias=both, scales=scales)
