"""Attention in plain lines: what every other route is tested against."""

from ordinate.route import Call, Route, careful
from ordinate.shapes import Outputs


class Reference(Route):
    """A few plain lines that take every call, in any type, and hold every score.

    A number that is not finite reaches the rows that see it, which become NaN, and no others.
    """

    order = 1000
    serves = frozenset({"cap", "sinks", "weights"})

    def refuses(self, call: Call) -> str | None:
        """Nothing."""
        return None

    def run(self, call: Call) -> Outputs:
        """Scores, softmax, values."""
        return careful(call)

    def bytes(self, call: Call) -> int:
        """Scores and weights."""
        return 2 * call.pairs * max(call.q.element_size(), 4)
