"""Rotate pairs of channels by an angle."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.native import build, rotation

Layout = Literal["half", "interleaved"]
# angles in float64, whatever the model's type: at position 2^24 a float32 angle is wrong by whole radians
Angles = Float[Tensor, "#b n pairs"]
Wave = Float[Tensor, "#b #h n pairs"]
Heads = Float[Tensor, "b h n d"]
# numbers from which on it is worth building C++, once; both ways give the same bits
MANY = 2**16
# numbers that are turned at a time without C++: what a piece needs stays in the processor's cache
PIECE = 2**18


def rotate(x: Heads, angles: Angles, layout: Layout, magnitude: float = 1.0) -> Heads:
    """Turn each pair of channels of `x` by its angle: `Rotation` for a single use."""
    return Rotation.by(angles, layout, magnitude)(x)


class Rotation:
    """Multiply pairs of channels by complex numbers: made once, it serves queries, keys and all layers.

        (a, b)  ->  (a cos - b sin,  b cos + a sin)

    It is a rotation where cos and sin belong to one angle. Fewer pairs than half of the channels turn the first
    channels; the others stay as they are. Done in float32 at least and returned in the type of what is turned. The
    way back is the same with -sin, to any order. Gradients of cos and sin are served where they are asked for. On
    CPUs float32 and bfloat16 take one pass over memory, in C++ where it can be built (`ordinate.native`).

    Args:
        cos: the real parts, in float64; for all heads or for each.
        sin: the imaginary parts, in float64.
        layout: which channels pair up: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers),
            `interleaved` pairs 2m with 2m + 1 (the paper, GPT-J).
    """

    def __init__(self, cos: Wave, sin: Wave, layout: Layout) -> None:
        self.cos, self.sin, self.layout = cos, sin, layout
        self._made: dict[tuple[torch.dtype, int, int], tuple[Tensor, Tensor]] = {}

    @classmethod
    def by(cls, angles: Angles, layout: Layout, magnitude: float = 1.0) -> "Rotation":
        """Turn by one angle for each token and pair [radians], and multiply what turns by `magnitude`."""
        return cls(magnitude * angles.cos()[:, None], magnitude * angles.sin()[:, None], layout)

    def __call__(self, x: Heads) -> Heads:
        """Turn the pairs of channels of `x`; d must be twice the number of pairs, or more."""
        if 2 * self.cos.shape[-1] > x.shape[-1]:
            raise ValueError(
                f"a rotation turns channels of a head; got {x.shape[-1]} for {self.cos.shape[-1]} pairs; "
                "make the scheme for this head width"
            )
        learned = self.cos.requires_grad or self.sin.requires_grad
        # torch.compile makes one loop of the plain formula
        if learned or torch.compiler.is_compiling():
            return self._plain(x)
        # a decoder turns few numbers at a time: the bookkeeping of a way back would cost as much
        return _Turn.apply(x, self, False) if torch.is_grad_enabled() else self.turned(x, False)

    def _plain(self, x: Heads) -> Heads:
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = self.cos.to(wide), self.sin.to(wide)
        turning, still = x.tensor_split((2 * cos.shape[-1],), -1)
        first, second = split(turning.to(wide), self.layout)
        turned = join(first * cos - second * sin, second * cos + first * sin, self.layout).to(x.dtype)
        return torch.cat([turned, still], -1) if still.shape[-1] else turned

    def turned(self, x: Heads, back: bool) -> Heads:
        """What the formula gives, or its transpose."""
        if self._native(x):
            cos, sin = self._waves(torch.float32)
            return rotation.turn(x, cos, sin, interleaved=self.layout == "interleaved", back=back)
        return self._in_pieces(x, back)

    def _in_pieces(self, x: Heads, back: bool) -> Heads:
        """The same by PyTorch alone: each channel times a cosine, and its partner times a sine.

        Partners are read by shifting a whole row, with a sine of 0 where a channel has none there: short loops would
        cost more than their arithmetic. So heads that lie beside each other in memory are one row.
        """
        wide, beside = torch.promote_types(x.dtype, torch.float32), x.stride(1) < x.stride(2)
        rows = x.transpose(1, 2).flatten(2) if beside else x
        out, tables = torch.empty_like(rows), self._tables(wide, x.shape[-1], x.shape[1] if beside else 0)
        apart, sign = self.cos.shape[-1] if self.layout == "half" else 1, -1 if back else 1
        size = max(1, PIECE * x.shape[2] // max(1, x.numel()))
        for row, to, cos, sin in zip(*(y.split(size, -2) for y in (rows, out, *tables)), strict=True):
            row, made = row.to(wide), to if to.dtype == wide else torch.empty_like(to, dtype=wide)
            torch.mul(row, cos, out=made)
            made[..., :-apart].addcmul_(row[..., apart:], sin[..., :-apart], value=-sign)
            made[..., apart:].addcmul_(row[..., :-apart], sin[..., :-apart], value=sign)
            to.copy_(made)
        return out.unflatten(-1, x.shape[1::2]).transpose(1, 2) if beside else out

    def _native(self, x: Heads) -> bool:
        on_cpu = x.device.type == self.cos.device.type == "cpu" and type(x) is Tensor
        fits = x.dtype in (torch.float32, torch.bfloat16) and x.stride(3) == 1
        if not (on_cpu and fits):
            return False
        return build.reason("rotation") is None if x.numel() >= MANY else build.ready("rotation")

    def _waves(self, wide: torch.dtype) -> tuple[Wave, Wave]:
        """Cosines and sines in the type that is computed in."""
        key = wide, 0, 0
        if key not in self._made:
            self._made[key] = self.cos.to(wide).contiguous(), self.sin.to(wide).contiguous()
        return self._made[key]

    def _tables(self, wide: torch.dtype, width: int, heads: int) -> tuple[Tensor, Tensor]:
        """The cosine of each channel, and the sine at the first channel of each pair; as long as a row of heads."""
        key = wide, width, heads
        if key not in self._made:
            cos, sin = self._waves(wide)
            rest = (0, width - 2 * cos.shape[-1])
            tables = [
                torch.nn.functional.pad(join(cos, cos, self.layout), rest, value=1.0),
                torch.nn.functional.pad(join(sin, torch.zeros_like(sin), self.layout), rest),
            ]
            if heads:
                tables = [table.expand(-1, heads, -1, -1).transpose(1, 2).flatten(2) for table in tables]
            self._made[key] = tables[0], tables[1]
        return self._made[key]


class _Turn(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a rotation is no tensor)
    def forward(ctx: Any, x: Tensor, rotation: Rotation, back: bool) -> Tensor:
        ctx.rotation, ctx.back = rotation, back
        return rotation.turned(x, back)

    @staticmethod
    # pyrefly: ignore[bad-override]  (forward has as many)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        return _Turn.apply(grad_outputs[0], ctx.rotation, not ctx.back), None, None


def split(x: Float[Tensor, "*any d"], layout: Layout) -> tuple[Tensor, Tensor]:
    """The first and the second channels of all pairs."""
    if layout == "half":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., 0::2], x[..., 1::2]


def join(first: Float[Tensor, "*any p"], second: Float[Tensor, "*any p"], layout: Layout) -> Tensor:
    """The channels again whose pairs these are."""
    if layout == "half":
        return torch.cat([first, second], -1)
    return torch.stack([first, second], -1).flatten(-2)
