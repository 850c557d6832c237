"""Attention in plain lines: what every other route is tested against."""

import torch
from torch import nn

from ordinate.route import Call, Route
from ordinate.shapes import Outputs, Visible


class Reference(Route):
    """A few plain lines that take every call, in any type, and hold every score.

    A number that is not finite reaches the rows that see it, which become NaN, and no others.
    """

    order = 1000

    def refuses(self, call: Call) -> str | None:
        """Nothing."""
        return None

    def run(self, call: Call) -> Outputs:
        """Scores, softmax, values."""
        visible = call.where.visible
        k, v = (x.repeat_interleave(call.groups, 1) for x in (call.k, call.v))
        sound = [x.isfinite().all(-1) for x in (call.q, k, v)]
        # a hidden NaN would survive multiplication by a zero weight, so it is taken out first
        q, k, v = (x.masked_fill(~ok[..., None], 0.0) for x, ok in zip((call.q, k, v), sound, strict=True))
        # 16-bit scores overflow and forget neighbours: they are held in float32 at least
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(wide), k.to(wide)
        own = call.at.scheme.score(q, k, call.where)
        scores = (q @ k.mT if own is None else own) * call.scale
        for bias in (call.at.bias, call.at.scheme.content_bias(q, k, call.where)):
            if bias is not None:
                scores = scores + bias
        weights = _softmax(scores, visible).to(v.dtype)
        weights = nn.functional.dropout(weights, call.dropout)
        out = weights @ v
        carried = call.at.scheme.carry(weights, call.where)
        if carried is not None:
            out = out + carried
        seen = visible[:, None]
        poisoned = (seen & ~(sound[1] & sound[2])[:, :, None]).any(-1) | (seen.any(-1) & ~sound[0])
        return out.masked_fill(poisoned[..., None], float("nan"))

    def bytes(self, call: Call) -> int:
        """Scores and weights."""
        return 2 * call.pairs * max(call.q.element_size(), 4)


def _softmax(scores: torch.Tensor, visible: Visible) -> torch.Tensor:
    hidden = ~visible[:, None]
    # a row that sees nothing is reset before the softmax: masking its NaN afterwards would poison the gradient
    empty = hidden.all(-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~empty, float("-inf"))
    return scores.softmax(-1).masked_fill(hidden, 0.0)
