"""What is read from the residual stream without training, beside tasks that tell nothing of position."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.finding import Chart, Estimate
from ordinate.measures.presenting import Sample
from ordinate.measures.telling import estimate_of, line_of
from ordinate.measures.whereabouts import Places, Streams
from ordinate.ops.readout import likeness, nearest_mean, ridge
from ordinate.ops.variance import place_share

# layers that are read, and columns that may be larger than all others
READ, LARGEST = 7, 3
ENDS = (("as it enters", 0), ("in the end", -1))
CAPTION = (
    "Fitted to one half, scored on the other. Control task: numbers drawn for each token, which only who knows the "
    "token can tell. Places exchanged: in each by itself, so that nothing is left to tell."
)

Targets = Float[Tensor, "texts places"]
Numbers = Float[ndarray, "texts layers"]


def readouts(plain: Streams, chosen: Sample, places: Places, seed: int) -> tuple[list[Estimate], Chart]:
    """What ridge regression, the nearest mean and the likeness of vectors tell of places, and of controls.

    Args:
        plain: the stream of some places as it enters each layer, and as it leaves the last.
        chosen: what was read.
        places: which places.
        seed: of controls and intervals.
    """
    draw = torch.Generator().manual_seed(seed)
    layers = np.unique(np.linspace(0, len(plain) - 1, min(READ, len(plain))).round().astype(int))
    spread = places.double().expand(chosen.texts, -1)
    orders = torch.rand(spread.shape, generator=draw).argsort(1)
    targets = _targets(chosen, spread)
    told: dict[str, Targets] = dict(targets)
    if chosen.ids is not None:
        drawn = torch.rand(int(chosen.ids.max()) + 1, generator=torch.Generator().manual_seed(seed))
        told["control task"] = drawn[chosen.ids[:, places]].double()
    told["places exchanged"] = spread.gather(1, orders)
    read = {name: _by_layer(plain, layers, target) for name, target in told.items()}
    found = []
    for end, layer in ENDS:
        for name, values in read.items():
            null = None if name == "control task" else 0.0
            found.append(estimate_of(f"R^2 of the {name} read linearly, {end}", values[:, layer], seed, "", null))
        for name, target in targets.items():
            values = ridge(plain[layer], target, squares=True).numpy()
            found.append(estimate_of(f"R^2 of the {name} read with squares, {end}", values, seed, ""))
        exchanged = plain[layer].gather(1, orders[..., None].expand_as(plain[layer]))
        values, unit = nearest_mean(exchanged).numpy(), "share"
        found.append(estimate_of(f"places told, places exchanged, {end}", values, seed, unit, 1 / len(places)))
        values = likeness(plain[layer], places.double())
        found.append(estimate_of(f"distance told by likeness, {end}", values, seed, "rho"))
    return [*found, *_without_largest(plain, seed)], _chart(read, layers, seed)


def _targets(chosen: Sample, spread: Targets) -> dict[str, Targets]:
    if chosen.grid is None:
        return {"place": spread}
    return {"row": spread // chosen.grid[1], "column": spread % chosen.grid[1]}


def _by_layer(plain: Streams, layers: ndarray, target: Targets) -> Numbers:
    return np.stack([ridge(plain[layer], target).numpy() for layer in layers], 1)


def _without_largest(plain: Streams, seed: int) -> list[Estimate]:
    """How much of all vectors a few columns are, and what the share of position is without those."""
    found = []
    for end, layer in ENDS:
        x = plain[layer].double()
        sizes = (x - x.mean((0, 1))).square().sum((0, 1))
        order = sizes.argsort(descending=True)
        few, rest = order[:LARGEST], order[LARGEST:]
        share = float(sizes[few].sum() / sizes.sum().clamp(min=1e-300))
        name = f"variance in the {LARGEST} largest columns, {end}"
        found.append(Estimate(name=name, value=share, null=LARGEST / len(sizes), unit="of all"))
        values = place_share(x[..., rest]).numpy()
        name = f"share of position without the {LARGEST} largest columns, {end}"
        found.append(estimate_of(name, values, seed, "of the variance"))
    return found


def _chart(read: dict[str, Numbers], layers: ndarray, seed: int) -> Chart:
    lines = [line_of(name, layers.tolist(), own, seed, null=name == "places exchanged") for name, own in read.items()]
    title = "What is read from the stream linearly"
    return Chart(title=title, x="after layer", y="R^2", lines=tuple(lines), caption=CAPTION)
