"""Preallocated buffer of a KV cache, and the norm of its longest keys."""

from collections.abc import Callable

import torch

from ordinate.core.shapes import KeyNorms, Keys, Values

MaxKeyNorm = Callable[[], KeyNorms]
"""Returns the norm of the longest key of each head; not finite where a key or value of the head is not."""
# tokens per step of `max_key_norm`, so that temporaries stay in the processor's cache
CHUNK_TOKENS = 512


class KVBuffer:
    """Preallocated keys and values of one layer, so that appending a token does not copy the cache.

    Several `KVCache` may be views of one buffer. A view with fewer than `used` tokens is stale: another
    continuation has been written behind it, so it must copy to a new buffer before it grows.

    Args:
        k: keys, with free capacity along the token axis.
        v: values, likewise.
        used: number of tokens stored.
    """

    def __init__(self, k: Keys, v: Values, used: int) -> None:
        self.k, self.v, self.used = k, v, used
        self._reserved: Keys | None = None
        self._measured, self._longest = 0, k.new_zeros(k.shape[:2], dtype=torch.float32)

    @classmethod
    def allocate(cls, k: Keys, v: Values, new: int) -> "KVBuffer":
        """Allocate a buffer with capacity for these tokens and `new` more, plus half as many again and 16."""
        held = k.shape[2]
        size = held + new + (held + new) // 2 + 16
        buffers = [x.new_empty(*x.shape[:2], size, x.shape[3]) for x in (k, v)]
        for buffer, x in zip(buffers, (k, v), strict=True):
            buffer[:, :, :held] = x
        return cls(buffers[0], buffers[1], held)

    def can_append(self, k: Keys, held: int) -> bool:
        """True if keys of this shape can be appended in place after the first `held` tokens."""
        # an inference tensor cannot be written to outside of inference mode
        writable = torch.is_inference_mode_enabled() or not self.k.is_inference()
        return writable and self.used == held and held + k.shape[2] <= self.k.shape[2]

    def reserve(self, k: Keys, held: int) -> Keys | None:
        """Return the memory of keys after the first `held` tokens; None where keys of this shape have no room."""
        self._reserved = self.k[:, :, held : held + k.shape[2]] if self.can_append(k, held) else None
        return self._reserved

    def write(self, k: Keys, v: Values, held: int) -> None:
        """Write keys and values after the first `held` tokens; keys that were computed into `reserve` are there."""
        new = slice(held, held + k.shape[2])
        if k is not self._reserved:
            self.k[:, :, new] = k
        self.v[:, :, new], self.used, self._reserved = v, new.stop, None

    def max_key_norm(self) -> KeyNorms:
        """Largest key norm so far, for each head; not finite where any stored key or value of the head is not.

        Only tokens added since the last call are read.
        """
        new = slice(self._measured, self.used)
        if new.start < new.stop:
            for k, v in zip(*(x[:, :, new].split(CHUNK_TOKENS, 2) for x in (self.k, self.v)), strict=True):
                highest = torch.linalg.vector_norm(k.float(), dim=-1).amax(-1)
                # 0, or NaN where a value is not finite or the sum overflows
                flaw = v.float().sum((-2, -1)) * 0
                self._longest = self._longest.maximum(highest) + flaw
            self._measured = new.stop
        return self._longest
