"""Attention in plain lines: what every other route is tested against."""

from dataclasses import replace

from ordinate.route import Call, Route, plain
from ordinate.shapes import Outputs


class Reference(Route):
    """A few plain lines that take every call, in any type, and hold every score.

    A number that is not finite reaches the rows that see it, which become NaN, and no others.
    """

    order = 1000
    serves = frozenset({"cap", "sinks"})

    def refuses(self, call: Call) -> str | None:
        """Nothing."""
        return None

    def run(self, call: Call) -> Outputs:
        """Scores, softmax, values."""
        sound = [x.isfinite().all(-1) for x in (call.q, call.k, call.v)]
        # a hidden NaN would survive multiplication by a zero weight, so it is taken out first
        q, k, v = (x.masked_fill(~ok[..., None], 0.0) for x, ok in zip((call.q, call.k, call.v), sound, strict=True))
        out = plain(replace(call, q=q, k=k, v=v))
        seen = call.where.visible[:, None]
        keys = (sound[1] & sound[2]).repeat_interleave(call.groups, 1)
        poisoned = (seen & ~keys[:, :, None]).any(-1) | (seen.any(-1) & ~sound[0])
        return out.masked_fill(poisoned[..., None], float("nan"))

    def bytes(self, call: Call) -> int:
        """Scores and weights."""
        return 2 * call.pairs * max(call.q.element_size(), 4)
