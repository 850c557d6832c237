"""What it costs a model when the directions that tell its places apart are cut out of its stream."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.finding import Estimate
from ordinate.measures.harm import gauge
from ordinate.measures.intervening import Intervened
from ordinate.measures.presenting import Sample
from ordinate.measures.telling import estimate_of
from ordinate.measures.whereabouts import Streams, directions
from ordinate.shapes import Tokens
from ordinate.subject import Subject, Unfit, Watch

# directions that are cut out, and how much of what tells places apart they hold
CUT, ENERGY = 16, 0.9
# how many times directions of tokens are cut out instead
CONTROLS = 3


class Without(Watch):
    """Cuts directions out of the stream that enters a layer.

    Args:
        layer: which.
        directions: orthonormal rows.
        middle: what the stream is taken from before it is cut.
    """

    def __init__(self, layer: int, directions: Float[Tensor, "some width"], middle: Float[Tensor, "width"]) -> None:
        self.layer, self.directions, self.middle = layer, directions, middle

    def stream(self, layer: int, x: Tokens) -> Tokens | None:
        """What is left of it."""
        if layer != self.layer:
            return None
        along = self.directions.to(x)
        return x - (x - self.middle.to(x)) @ along.T @ along


def cuts(subject: Subject, few: Sample, plain: Streams, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    """What it costs to cut the directions of position out before the first and the middle layer.

    Args:
        subject: the model.
        few: what it reads with directions cut out.
        plain: the stream of some texts and places as it enters each layer; it tells the directions.
        seed: of controls and intervals.
        reasons: is told why something was not measured.
    """
    draw, found = torch.Generator().manual_seed(seed), []
    base = gauge(subject, few, seed)
    usual = base.measure()
    for layer in sorted({0, subject.facts.layers // 2}):
        x = plain[layer].double()
        own, middle = directions(x, ENERGY, min(CUT, x.shape[2] // 2)), x.mean((0, 1))
        # means of as many vectors that stand anywhere: what is cut out is of tokens alone
        orders = [torch.rand(x.shape[:2], generator=draw).argsort(1) for _ in range(CONTROLS)]
        others = [directions(x.gather(1, order[..., None].expand_as(x)), 1.0, len(own)) for order in orders]
        try:
            rises = []
            for rows in (own, *others):
                base.subject = Intervened(subject, Without(layer, rows, middle))
                rises.append(base.measure() - usual)
        except Unfit as reason:
            reasons[f"cutting position out before layer {layer + 1}"] = str(reason)
            continue
        name = f"position cut out before layer {layer + 1} ({len(own)} directions)"
        control = np.mean(rises[1:], 0)
        # how far each control is from the others
        chance = np.abs(np.mean(rises[1:], 1) - control.mean()).max() * CONTROLS / (CONTROLS - 1)
        found.append(estimate_of(f"rise, {name}", rises[0], seed, base.unit))
        beyond = estimate_of(f"rise beyond as many of tokens, {name}", rises[0] - control, seed, base.unit)
        found.append(beyond.model_copy(update={"null_low": -float(chance), "null_high": float(chance)}))
    return found
