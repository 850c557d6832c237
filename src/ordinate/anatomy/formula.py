"""The formula of our attention in plain lines, with everything in it in sight."""

from dataclasses import dataclass

import torch

from ordinate.projections import Projections
from ordinate.route import Call, Formula, scores, weigh
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Values, Visible
from ordinate.subject import Attended, Watch


@dataclass(frozen=True, eq=False)
class Plainly:
    """Attention of one layer by the plain formula, watched: stands in the place of `Projections.compute`.

    Args:
        mixer: whose attention it is.
        layer: its number.
        watch: what looks on.
        visible: who sees whom, in place of what the geometry says; None: as it says.
    """

    mixer: Projections
    layer: int
    watch: Watch
    visible: Visible | None

    def __call__(
        self, q: Queries, k: Keys, v: Values, at: Placed, formula: Formula, route: str | None = None, **_: object
    ) -> Outputs:
        """What each head reads."""
        hooks, watch, layer = self.watch.hooks, self.watch, self.layer
        if "marked" in hooks:
            q, k, v = watch.marked(layer, q, k, v) or (q, k, v)
        call = Call(q, k, v, at, self.mixer.scale, 0.0, formula)
        visible = at.where.visible if self.visible is None else self.visible.to(q.device)
        scored = scores(call).masked_fill(~visible[:, None], float("-inf"))
        if "scores" in hooks:
            scored = _or(watch.scores(layer, scored), scored)
        weights = weigh(scored, visible, formula).to(v.dtype)
        if "weights" in hooks:
            weights = _or(watch.weights(layer, weights), weights)
        carried = at.scheme.carry(weights, at.where)
        out = weights @ v.repeat_interleave(call.groups, 1)
        out = out if carried is None else out + carried
        if "attended" in hooks:
            watch.attended(layer, Attended(q, k, v, scored, weights, out))
        return out


class Seen(Watch):
    """Notes which layers attend."""

    def __init__(self) -> None:
        self.layers: set[int] = set()

    def attended(self, layer: int, seen: Attended) -> None:
        """Note it."""
        self.layers.add(layer)


def _or(new: torch.Tensor | None, old: torch.Tensor) -> torch.Tensor:
    return old if new is None else new
