"""Mixture of experts: a feed-forward network of which a router chooses a few parts for each token."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive, need_type, need_whole
from ordinate.core.option_values import need_numbers
from ordinate.core.shapes import Tokens
from ordinate.models.activation import ACTIVATIONS, Activation
from ordinate.models.feedforward import FEEDFORWARD_KINDS, GATED, FeedForward, FeedForwardKind, Gate
from ordinate.ops.grouped_linear import grouped_linear
from ordinate.ops.linear_layer import Linear

Rows = Float[Tensor, "tokens width"]
# of gpt-oss, with which the gate is nearly a GELU
SLOPE = 1.702


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

    Raises:
        ValueError: sizes that are not positive, or an option without effect.
    """

    count: int
    chosen: int = 2
    normalise: bool = True
    limit: float | None = None
    slope: float = SLOPE
    dense_layers: tuple[int, ...] = ()
    dense_hidden: int | None = None

    def __post_init__(self) -> None:
        need_numbers(self)
        for name in ("count", "chosen", "dense_hidden"):
            if getattr(self, name) is not None:
                need_whole(name, getattr(self, name))
                need_positive(name, getattr(self, name))
        need(
            self.chosen <= self.count,
            "a token has at most as many experts as there are",
            f"got chosen={self.chosen} of {self.count}",
            "give fewer",
        )
        if self.limit is not None:
            need_positive("limit", self.limit)
        need(math.isfinite(self.slope), "slope must be a finite number", f"got {self.slope}", "1.702 is usual")
        must = "slope has an effect with a limit only"
        need(self.limit is not None or self.slope == SLOPE, must, f"got slope={self.slope}", "leave it out")
        usual = "dense_hidden has an effect with dense_layers only"
        need(bool(self.dense_layers) or self.dense_hidden is None, usual, "got no dense_layers", "leave it out")

    def with_defaults(self, hidden: int) -> "ExpertOptions":
        """Return a copy with all defaults filled in, for this hidden width of an expert."""
        wide = hidden if self.dense_layers and self.dense_hidden is None else self.dense_hidden
        return replace(self, dense_layers=tuple(sorted(set(self.dense_layers))), dense_hidden=wide)


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

        p = softmax(W_r x + b_r);   y = sum over the chosen e of p_e / s * (W_3e (f(W_1e x) * W_2e x))

    The chosen experts have the largest p, and s is the sum of theirs, or 1 without `normalise`. Only they are
    computed. A feed-forward without a gate is W_2e f(W_1e x). With a limit c and a slope a, the hidden layer is

        g sigmoid(a g) * (v + 1),   g = min(W_1e x, c),   v = clamp(W_2e x, -c, c)

    Args:
        kind: f, or a gated linear unit; see `FeedForward`.
        width: columns of the model.
        hidden: width of the hidden layer of an expert.
        options: number of experts and how they are chosen.
        bias: whether the linear layers of the experts have biases.
        router_bias: whether the router has one.

    Raises:
        ValueError: an unknown kind, or a width that is not positive.
    Source: Shazeer et al. 2017, https://arxiv.org/abs/1701.06538; the choice is that of Jiang et al. 2024, Mixtral of
        Experts, section 2.1, https://arxiv.org/abs/2401.04088; the limit that of OpenAI 2025, gpt-oss, section 2.2,
        https://arxiv.org/abs/2508.10925.
    Departs: no loss that balances the load of the experts, no capacity and no noise: no token is dropped.
    """

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
        for name, value in (("width", width), ("hidden", hidden)):
            need_positive(name, value)
        self.options, self.gated = options, kind in GATED
        self.activation = ACTIVATIONS[GATED[cast(Gate, kind)] if self.gated else cast(Activation, kind)]
        self.router = Linear(width, options.count, bias=router_bias)
        self.widen = ExpertLinear(options.count, width, 2 * hidden if self.gated else hidden, bias=bias)
        self.narrow = ExpertLinear(options.count, hidden, width, bias=bias)

    def forward(self, x: Tokens) -> Tokens:
        """Apply to each token the experts that the router chooses for it."""
        rows = x.flatten(0, -2)
        weights, chosen = self.route(rows)
        # rows of the same expert beside each other
        experts, order = chosen.flatten().sort(stable=True)
        made = self.narrow(self.hidden_layer(self.widen(rows[order // self.options.chosen], experts)), experts)
        back = order.argsort()
        each = made[back].unflatten(0, (-1, self.options.chosen))
        return (each * weights[..., None].to(each.dtype)).sum(1).unflatten(0, x.shape[:-1])

    def route(self, rows: Rows) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"]]:
        """Return the weights of the chosen experts of each token, and which they are."""
        logits = self.router(rows)
        # in 16 bits, shares that differ little would be equal
        shares = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        weights, chosen = shares.topk(self.options.chosen)
        return weights / weights.sum(-1, keepdim=True) if self.options.normalise else weights, chosen

    def hidden_layer(self, x: Rows) -> Float[Tensor, "tokens hidden"]:
        """Return the hidden layer of the experts from the output of their first linear layer."""
        if not self.gated:
            return self.activation(x)
        gate, value = x.chunk(2, -1)
        if self.options.limit is None:
            return self.activation(gate) * value
        gate, value = gate.clamp(max=self.options.limit), value.clamp(-self.options.limit, self.options.limit)
        return gate * torch.sigmoid(self.options.slope * gate) * (value + 1)


def make_feedforward(
    kind: FeedForwardKind,
    width: int,
    hidden: int,
    bias: Collection[str],
    *,
    options: ExpertOptions | None,
    layer: int,
) -> FeedForward | Experts:
    """Build the feed-forward network of a layer, or its experts.

    Args:
        kind: activation function, or gated linear unit.
        width: columns of the model.
        hidden: hidden width, of each expert if there are some.
        bias: what has biases: `feedforward`, `feedforward_in`, `router`.
        options: the experts of the model; None: none.
        layer: the layer, counted from 0.
    """
    both = "feedforward" in bias
    if options is not None and layer not in options.dense_layers:
        return Experts(kind, width, hidden, options, bias=both, router_bias="router" in bias)
    wide = hidden if options is None or options.dense_hidden is None else options.dense_hidden
    return FeedForward(kind, width, wide, bias=both or "feedforward_in" in bias, out_bias=both)


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
