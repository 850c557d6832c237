"""Early exit: record the output of the last layer, and stop a forward pass that needs no logits."""

from collections.abc import Callable

from ordinate.core.shapes import Tokens
from ordinate.probing._adapter import Hooks


class EarlyExit(Exception):  # noqa: N818 - control flow: stops a forward pass after the last layer
    """Stops a forward pass after the last layer."""


def last_layer_hook(watch: Hooks, layers: int, last: list[Tokens]) -> Callable[[Tokens], Tokens | None]:
    """Return a hook for the output of the last layer: it calls the watch, records the stream and may stop the pass.

    Args:
        watch: the hooks.
        layers: number of layers.
        last: list that receives the residual stream.
    """

    def leave(x: Tokens) -> Tokens | None:
        new = watch.residual(layers, x)
        last.append(x if new is None else new)
        if watch.skip_head:
            raise EarlyExit
        return new

    return leave
