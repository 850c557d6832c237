"""Linear probes: position read from the residual stream by ridge regression, beside control tasks."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Chart, Estimate
from ordinate.ops.linear_readout import nearest_mean_accuracy, ridge_r2, similarity_by_distance
from ordinate.ops.stats.variance_components import position_share
from ordinate.probing.measures.formatting import mean_estimate, mean_line, share_estimate
from ordinate.probing.measures.residual_stream import Positions, ResidualStreams
from ordinate.probing.measures.samples import Sample

# most layers that are probed, and number of outlier dimensions that are left out
MAX_LAYERS, OUTLIER_DIMENSIONS = 7, 3
LAYER_ENDS = (("input", 0), ("final layer", -1))
CAPTION = (
    "Fitted to one half, scored on the other. Control task: a random number for each token, predictable only from "
    "the token's identity. Shuffled positions: permuted within each text, so that nothing is predictable."
)

Targets = Float[Tensor, "texts places"]
Numbers = Float[ndarray, "tested layers"]


@dataclass(frozen=True)
class LinearProbes:
    """What linear probes read.

    Args:
        estimates: at the input and after the last layer.
        chart: R^2 by layer.
        final: R^2 for position of each tested text after the last layer, by name of the estimate.
    """

    estimates: list[Estimate]
    chart: Chart
    final: dict[str, Float[ndarray, "tested"]]


def linear_probes(plain: ResidualStreams, chosen: Sample, places: Positions, seed: int) -> LinearProbes:
    """Decode position by ridge regression, nearest class mean and cosine similarity, beside controls.

    Args:
        plain: residual-stream vectors at the input of each layer and after the last.
        chosen: the sample.
        places: positions of the vectors.
        seed: seed of controls and intervals.
    """
    layers = np.unique(np.linspace(0, len(plain) - 1, min(MAX_LAYERS, len(plain))).round().astype(int))
    spread = places.double().expand(chosen.count, -1)
    orders = torch.rand(spread.shape, generator=torch.Generator().manual_seed(seed)).argsort(1)
    targets = _targets(chosen, spread)
    read = {
        name: _by_layer(plain, layers, target)
        for name, target in _tasks(chosen, places, targets, spread.gather(1, orders), seed).items()
    }
    found, final = list[Estimate](), dict[str, Float[ndarray, "tested"]]()
    for end, layer in LAYER_ENDS:
        for name, values in read.items():
            null = None if name == "control task" else 0.0
            found.append(mean_estimate(f"R^2 of a linear probe for {name}, {end}", values[:, layer], seed, "", null))
        for name, target in targets.items():
            values = ridge_r2(plain[layer], target, squares=True).numpy()
            found.append(mean_estimate(f"R^2 of a linear probe with squares for {name}, {end}", values, seed, ""))
            if layer == -1:
                final[f"R^2 of a linear probe for {name}, {end}"] = read[name][:, layer]
                final[f"R^2 of a linear probe with squares for {name}, {end}"] = values
        exchanged = plain[layer].gather(1, orders[..., None].expand_as(plain[layer]))
        values, unit = nearest_mean_accuracy(exchanged).numpy(), "share"
        found.append(
            mean_estimate(
                f"positions recovered by nearest mean, shuffled positions, {end}", values, seed, unit, 1 / len(places)
            )
        )
        values = similarity_by_distance(plain[layer], places.double())
        found.append(
            mean_estimate(f"rank correlation of cosine distance and token distance, {end}", values, seed, "rho")
        )
    return LinearProbes([*found, *_without_largest(plain)], _chart(read, layers, seed), final)


def _tasks(
    chosen: Sample, places: Positions, targets: dict[str, Targets], exchanged: Targets, seed: int
) -> dict[str, Targets]:
    """Targets of the linear probes: position, and the controls."""
    tasks = dict(targets)
    if chosen.ids is not None:
        drawn = torch.rand(int(chosen.ids.max()) + 1, generator=torch.Generator().manual_seed(seed))
        tasks["control task"] = drawn[chosen.ids[:, places]].double()
    return {**tasks, "shuffled positions": exchanged}


def _targets(chosen: Sample, spread: Targets) -> dict[str, Targets]:
    if chosen.grid is None:
        return {"position": spread}
    return {"row": spread // chosen.grid[1], "column": spread % chosen.grid[1]}


def _by_layer(plain: ResidualStreams, layers: ndarray, target: Targets) -> Numbers:
    return np.stack([ridge_r2(plain[layer], target).numpy() for layer in layers], 1)


def _without_largest(plain: ResidualStreams) -> list[Estimate]:
    """Variance held by the largest dimensions, and variance explained by position without them."""
    found = []
    for end, layer in LAYER_ENDS:
        x = plain[layer].double()
        sizes = (x - x.mean((0, 1))).square().sum((0, 1))
        order = sizes.argsort(descending=True)
        few, rest = order[:OUTLIER_DIMENSIONS], order[OUTLIER_DIMENSIONS:]
        share = float(sizes[few].sum() / sizes.sum().clamp(min=1e-300))
        name = f"variance in the {OUTLIER_DIMENSIONS} largest dimensions, {end}"
        found.append(Estimate(name=name, value=share, null=OUTLIER_DIMENSIONS / len(sizes), unit="of the variance"))
        name = f"variance explained by position without the {OUTLIER_DIMENSIONS} largest dimensions, {end}"
        found.append(share_estimate(name, position_share(x[..., rest])))
    return found


def _chart(read: dict[str, Numbers], layers: ndarray, seed: int) -> Chart:
    lines = [
        mean_line(name, layers.tolist(), own, seed, null=name == "shuffled positions") for name, own in read.items()
    ]
    title = "Linear probes on the residual stream"
    return Chart(title=title, x="after layer", y="R^2", lines=tuple(lines), caption=CAPTION)
