"""The end of the last layer: what leaves it is looked at, and a pass that has shown all may end there."""

from collections.abc import Callable

from ordinate.shapes import Tokens
from ordinate.subject import Watch


class Enough(Exception):  # noqa: N818 - no error: a forward pass has shown all that was wanted
    """What comes after the last layer is not computed."""


def leaving(watch: Watch, layers: int, last: list[Tokens]) -> Callable[[Tokens], Tokens | None]:
    """Show a watch what leaves the last layer, note it, and end the pass where the watch wants no more.

    Args:
        watch: looks on.
        layers: how many there are.
        last: is told the stream.
    """

    def leave(x: Tokens) -> Tokens | None:
        new = watch.stream(layers, x)
        last.append(x if new is None else new)
        if watch.headless:
            raise Enough
        return new

    return leave
