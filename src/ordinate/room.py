"""Where remembered keys and values lie."""

from collections.abc import Callable

import torch

from ordinate.shapes import Keys, Lengths, Values

Longest = Callable[[], Lengths]
"""Tells the length of the longest key of each head, when it is asked; not finite where a key or a value is not."""
# tokens that are measured at a time: what they need stays in the processor's cache
PIECE = 512


class Room:
    """Memory that keys and values grow into, so that what is remembered is not copied for each new token.

    Args:
        k: keys, with places that are still free.
        v: their values.
        filled: places that hold a token; whoever remembers fewer has been left behind, and needs another room.
    """

    def __init__(self, k: Keys, v: Values, filled: int) -> None:
        self.k, self.v, self.filled = k, v, filled
        self._measured, self._longest = 0, k.new_zeros(k.shape[:2], dtype=torch.float32)

    @classmethod
    def around(cls, k: Keys, v: Values, new: int) -> "Room":
        """A room for these, so many new ones, and half as many more."""
        held = k.shape[2]
        size = held + new + (held + new) // 2 + 16
        wide = [x.new_empty(*x.shape[:2], size, x.shape[3]) for x in (k, v)]
        for room, x in zip(wide, (k, v), strict=True):
            room[:, :, :held] = x
        return cls(wide[0], wide[1], held)

    def takes(self, k: Keys, held: int) -> bool:
        """Whether such keys can be put behind those held."""
        # what was made in inference mode cannot be written to outside of it
        writable = torch.is_inference_mode_enabled() or not self.k.is_inference()
        return writable and self.filled == held and held + k.shape[2] <= self.k.shape[2]

    def longest(self) -> Lengths:
        """The length of the longest key that was ever put here, of each head; not finite where a number is not.

        Only keys that came since the last time are measured.
        """
        new = slice(self._measured, self.filled)
        if new.start < new.stop:
            for k, v in zip(*(x[:, :, new].split(PIECE, 2) for x in (self.k, self.v)), strict=True):
                highest = torch.linalg.vector_norm(k.float(), dim=-1).amax(-1)
                # 0, or NaN where a value is not finite, or too large to be summed
                flaw = v.float().sum((-2, -1)) * 0
                self._longest = self._longest.maximum(highest) + flaw
            self._measured = new.stop
        return self._longest
