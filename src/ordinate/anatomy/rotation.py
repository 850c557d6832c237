"""See queries and keys before they are rotated, in models of transformers."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.anatomy.positions import Change
from ordinate.anatomy.replaced import entering, replaced
from ordinate.shapes import Keys, Queries, Values
from ordinate.subject import Unfit, Watch

ROTATE = "apply_rotary_pos_emb"
"""What nearly every file of transformers calls the function that rotates."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A call of the function that rotates, of queries or of keys: rows of (batch, heads, tokens, channels).

    Args:
        before: what entered.
        after: what left.
        again: what would leave if other rows entered.
    """

    before: Tensor
    after: Tensor
    again: Callable[[Tensor], Tensor]

    def opened(self, x: Tensor) -> Tensor | None:
        """Whole heads before they were rotated; None: what was rotated does not stand in front in them.

        Args:
            x: the heads as they enter the products.
        """
        size, after = self.before.shape[-1], self.after.to(x.dtype)
        front = x[..., :size]
        return torch.cat([self.before.to(x.dtype), x[..., size:]], -1) if torch.equal(front, after) else None

    def closed(self, x: Tensor) -> Tensor:
        """Whole heads, rotated."""
        size = self.before.shape[-1]
        return torch.cat([self.again(x[..., :size].to(self.before.dtype)).to(x.dtype), x[..., size:]], -1)


class Rotations:
    """Shows queries and keys to a watch as they are before the function that rotates them.

    Where it is given whole heads, queries and keys together, that is on their way into it. Where it is given a part
    of each head, as in Phi, or keys before queries, as in GPT-J, that is when they enter the products: the parts of
    a head are put together again, and what the watch has changed is rotated as the others were.

    Args:
        watch: what looks on.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch, self.layer, self.width = watch, 0, 0
        self.turns: list[Turn] = []

    def follow(self, attentions: Sequence[nn.Module]) -> Iterator[Change]:
        """What is changed, for the modules that compute attention, layer by layer."""
        for layer, module in enumerate(attentions):
            yield entering(module, partial(self._begin, layer, getattr(module, "head_dim", 0)))
        for space in {sys.modules[type(module).__module__] for module in attentions}:
            if hasattr(space, ROTATE):
                yield replaced(space, ROTATE, partial(self._rotate, getattr(space, ROTATE)))
        yield replaced(self.watch, "marked", partial(self._late, self.watch.marked))

    def _begin(self, layer: int, width: int, _: Tensor) -> None:
        self.layer, self.width, self.turns = layer, width, []

    def _rotate(self, original: Any, first: Tensor, second: Tensor, *given: Any, **named: Any) -> Any:
        if second.ndim != first.ndim:
            out = original(first, second, *given, **named)

            def again(x: Tensor) -> Tensor:
                return original(x.transpose(1, 2), second, *given, **named).transpose(1, 2)

            # here tokens stand before heads
            self.turns.append(Turn(first.transpose(1, 2), out.transpose(1, 2), again))
            return out
        if first.shape[-1] < self.width:
            q, k = original(first, second, *given, **named)
            keys = Turn(second, k, lambda x: original(first, x, *given, **named)[1])
            self.turns = [keys, Turn(first, q, lambda x: original(x, second, *given, **named)[0])]
            return q, k
        q, k = self.watch.raw(self.layer, first, second) or (first, second)
        return original(q, k, *given, **named)

    def _late(self, marked: Any, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Show what was rotated in parts, before whoever looks at what enters the products."""
        new = None
        if len(self.turns) == 2:
            keys, queries = self.turns
            whole = queries.opened(q), keys.opened(k)
            if whole[0] is None or whole[1] is None:
                if self.watch.raw(layer, queries.before, keys.before) is not None:
                    raise Unfit("what is rotated of a head is put elsewhere in it: change heads as they are `marked`")
            elif (changed := self.watch.raw(layer, whole[0], whole[1])) is not None:
                q, k = queries.closed(changed[0]), keys.closed(changed[1])
                new = q, k, v
        return marked(layer, q, k, v) or new


def unrotated(*given: Any, **named: Any) -> Any:
    """What the function that rotates is given."""
    first, second = [*given, *named.values()][:2]
    return (first, second) if second.ndim == first.ndim else first
