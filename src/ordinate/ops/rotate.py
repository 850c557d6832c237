"""Rotary position embeddings: rotate pairs of channels by angles."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.devices import on_gpu
from ordinate.core.tensors import on_device
from ordinate.ops.double_backward import one_by_one, untraceable
from ordinate.ops.finite_vectors import by_finite_vectors
from ordinate.ops.native import build, rotation
from ordinate.ops.triton import rotation as triton_rotation

Layout = Literal["half", "interleaved"]
# angles in float64, whatever the model's dtype: at position 2^24 a float32 angle is wrong by whole radians
Angles = Float[Tensor, "#b n pairs"]
Cosines = Float[Tensor, "#b #h n pairs"]
Heads = Float[Tensor, "b h n d"]
OtherHeads = Float[Tensor, "_ _ _ _"]
# tensors with fewer elements do not trigger the compilation of the C++ kernel; both give the same bits
MIN_NATIVE_ELEMENTS = 2**16
# elements rotated at a time without C++: the operands of a piece stay in the processor's cache
PIECE_ELEMENTS = 2**18


def rotate(x: Heads, angles: Angles, layout: Layout, magnitude: float = 1.0) -> Heads:
    """Rotate each pair of channels of `x` by its angle: `Rotation` for a single use."""
    return Rotation.by(angles, layout, magnitude)(x)


class Rotation:
    """Rotate pairs of channels: computed once from angles, shared by queries, keys and all layers.

        (a, b)  ->  (a cos - b sin,  b cos + a sin)

    This is a complex multiplication, and a rotation if cos and sin belong to one angle. With fewer pairs than half of
    the channels, the first channels are rotated and the others are unchanged. Computed in float32 or wider, returned
    in the dtype of the input. The backward pass is the same with -sin, so that derivatives of any order exist.
    Gradients of cos and sin are computed if they require them. On CPUs float32 and bfloat16 take one pass over
    memory, in C++ where it can be built (`ordinate.ops.native`). On GPUs so do float16, bfloat16 and float32, in
    Triton, after it has agreed with the plain formula there (`ordinate.ops.triton.rotation`).

    Args:
        cos: real parts, in float64 (see `core.tensors.in_float64`); shared by all heads or one set per head.
        sin: imaginary parts, in float64.
        layout: which channels pair up: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers),
            `interleaved` pairs 2m with 2m + 1 (the paper, GPT-J).
    """

    def __init__(self, cos: Cosines, sin: Cosines, layout: Layout) -> None:
        self.cos, self.sin, self.layout = cos, sin, layout
        self._made: dict[tuple[torch.dtype, int, int], tuple[Tensor, Tensor]] = {}
        # what the Triton kernel has been proved for: asked again, it would take as long as the launch
        self._proved: set[tuple[Any, ...]] = set()

    @classmethod
    def by(cls, angles: Angles, layout: Layout, magnitude: float = 1.0) -> "Rotation":
        """Rotate by one angle per token and pair [radians], and multiply the rotated channels by `magnitude`."""
        return cls(magnitude * angles.cos()[:, None], magnitude * angles.sin()[:, None], layout)

    def __call__(self, x: Heads) -> Heads:
        """Rotate `x`, which must have at least two channels per pair."""
        self._need_pairs(x)
        if self._learned:
            return by_finite_vectors(self._plain, x)
        # torch.compile fuses the plain formula into one loop
        if torch.compiler.is_compiling() or untraceable(x):
            return self._plain(x)
        # a decoding step rotates few elements: the overhead of an autograd node would cost as much as the rotation
        return _Turn.apply(x, self, False) if torch.is_grad_enabled() else self.apply(x, False)

    def both(self, q: Heads, k: OtherHeads, into: OtherHeads | None = None) -> tuple[Heads, OtherHeads]:
        """Rotate queries and keys: on GPUs by one launch, which takes the host half the time of two.

        Args:
            q: queries.
            k: keys.
            into: memory for the rotated keys, of their shape and dtype, without gradients; None: memory of their own.
        """
        alike = q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:] and q.dtype == k.dtype
        fixed = self.cos.shape[1] == 1 and not self._learned
        eager = on_gpu(q) and q.device == k.device and not (torch.compiler.is_compiling() or untraceable(q))
        fits = alike and fixed and eager and 2 * self.cos.shape[-1] <= q.shape[-1]
        if not fits or type(k) is not Tensor or self.triton_unusable_reason(q, both=True) is not None:
            return self(q), self(k) if into is None else self._write(k, into)
        if into is None and torch.is_grad_enabled():
            return _TurnBoth.apply(q, k, self, False)
        return self.apply_both(q, k, False, into)

    def _write(self, x: Heads, into: Heads) -> Heads:
        """Rotate `x` into other memory."""
        self._need_pairs(x)
        return into.copy_(self(x)) if self._learned or untraceable(x) else self.apply(x, False, into)

    @property
    def _learned(self) -> bool:
        return self.cos.requires_grad or self.sin.requires_grad

    def _need_pairs(self, x: Heads) -> None:
        if 2 * self.cos.shape[-1] > x.shape[-1]:
            raise ValueError(
                f"head width must be at least twice the number of rotated pairs; got {x.shape[-1]} channels for "
                f"{self.cos.shape[-1]} pairs; build the scheme for this head width"
            )

    def _plain(self, x: Heads) -> Heads:
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = (on_device(wave, wide, x.device) for wave in (self.cos, self.sin))
        turning, still = x.tensor_split((2 * cos.shape[-1],), -1)
        first, second = split_pairs(turning.to(wide), self.layout)
        turned = join_pairs(first * cos - second * sin, second * cos + first * sin, self.layout).to(x.dtype)
        return torch.cat([turned, still], -1) if still.shape[-1] else turned

    def apply(self, x: Heads, back: bool, into: Heads | None = None) -> Heads:
        """Apply the rotation, or its transpose (`back`), without autograd; the result is written `into` memory."""
        native = self._native(x)
        if native or self.triton_unusable_reason(x) is None:
            kernel = rotation.rotate if native else triton_rotation.rotate
            waves = self._waves(torch.float32, x.device)
            return kernel(x, *waves, interleaved=self._interleaved, back=back, into=into)
        made = self._in_pieces(x, back)
        return made if into is None else into.copy_(made)

    def apply_both(
        self, q: Heads, k: OtherHeads, back: bool, into: OtherHeads | None = None
    ) -> tuple[Heads, OtherHeads]:
        """Apply the rotation, or its transpose (`back`), to queries and keys on a GPU, without autograd."""
        waves = self._waves(torch.float32, q.device)
        return triton_rotation.rotate_both(q, k, *waves, interleaved=self._interleaved, back=back, into=into)

    @property
    def _interleaved(self) -> bool:
        return self.layout == "interleaved"

    def triton_unusable_reason(self, x: Heads, *, both: bool = False) -> str | None:
        """Return why `x` is not rotated by the Triton kernel, or queries and keys like it by one; None if it is."""
        form = type(x), x.device, x.dtype, x.shape[0], x.shape[3], both
        if form in self._proved:
            return None

        def plain(x: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
            return Rotation(cos, -sin if back else sin, self.layout)._plain(x)

        reason = triton_rotation.unusable_reason(x, self.cos, interleaved=self._interleaved, plain=plain, both=both)
        if reason is None:
            self._proved.add(form)
        return reason

    def _in_pieces(self, x: Heads, back: bool) -> Heads:
        """The same in PyTorch alone: x cos, plus the partner of each channel times a sine.

        Partners are read by shifting whole rows, with a sine of 0 where a channel has no partner on that side: many
        short strided loops would cost more than the wasted arithmetic. For the same reason heads that are adjacent
        in memory are treated as one row.
        """
        wide, beside = torch.promote_types(x.dtype, torch.float32), x.stride(1) < x.stride(2)
        rows = x.transpose(1, 2).flatten(2) if beside else x
        out, tables = torch.empty_like(rows), self._tables(wide, x, beside)
        apart, sign = self.cos.shape[-1] if self.layout == "half" else 1, -1 if back else 1
        size = max(1, PIECE_ELEMENTS * x.shape[2] // max(1, x.numel()))
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
        return (
            build.unavailable_reason("rotation") is None
            if x.numel() >= MIN_NATIVE_ELEMENTS
            else build.is_loaded("rotation")
        )

    def _waves(self, wide: torch.dtype, device: torch.device) -> tuple[Cosines, Cosines]:
        """Cosines and sines in the dtype of the computation, cached."""
        key = wide, 0, 0
        if key not in self._made:
            cos, sin = (on_device(wave, wide, device).contiguous() for wave in (self.cos, self.sin))
            self._made[key] = cos, sin
        return self._made[key]

    def _tables(self, wide: torch.dtype, x: Heads, beside: bool) -> tuple[Tensor, Tensor]:
        """Cosine of each channel, and sine at the first of each pair (else 0); repeated if heads are `beside`."""
        width, heads = x.shape[-1], x.shape[1] if beside else 0
        key = wide, width, heads
        if key not in self._made:
            cos, sin = self._waves(wide, x.device)
            rest = (0, width - 2 * cos.shape[-1])
            tables = [
                torch.nn.functional.pad(join_pairs(cos, cos, self.layout), rest, value=1.0),
                torch.nn.functional.pad(join_pairs(sin, torch.zeros_like(sin), self.layout), rest),
            ]
            if heads:
                tables = [table.expand(-1, heads, -1, -1).transpose(1, 2).flatten(2) for table in tables]
            self._made[key] = tables[0], tables[1]
        return self._made[key]


class _Turn(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a rotation is not a tensor)
    def forward(ctx: Any, x: Tensor, rotation: Rotation, back: bool) -> Tensor:
        ctx.rotation, ctx.back = rotation, back
        ctx.set_materialize_grads(False)
        return rotation.apply(x, back)

    @staticmethod
    # pyrefly: ignore[bad-override]  (forward has as many)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        if grad_outputs[0] is None:
            return None, None, None
        # by apply, so that the backward pass is itself differentiable
        turned = one_by_one(lambda slope: (_Turn.apply(slope, ctx.rotation, not ctx.back),), *grad_outputs)
        return *turned, None, None


class _TurnBoth(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a rotation is not a tensor)
    def forward(ctx: Any, q: Tensor, k: Tensor, rotation: Rotation, back: bool) -> tuple[Tensor, Tensor]:
        ctx.rotation, ctx.back = rotation, back
        ctx.set_materialize_grads(False)
        return rotation.apply_both(q, k, back)

    @staticmethod
    # pyrefly: ignore[bad-override]  (forward has as many)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        if any(slope is None for slope in grad_outputs):
            turned = (None if slope is None else _Turn.backward(ctx, slope)[0] for slope in grad_outputs)
        else:
            turned = one_by_one(lambda q, k: _TurnBoth.apply(q, k, ctx.rotation, not ctx.back), *grad_outputs)
        return *turned, None, None


def split_pairs(x: Float[Tensor, "*any d"], layout: Layout) -> tuple[Tensor, Tensor]:
    """Split channels into the first and the second of each pair."""
    if layout == "half":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., 0::2], x[..., 1::2]


def join_pairs(first: Float[Tensor, "*any p"], second: Float[Tensor, "*any p"], layout: Layout) -> Tensor:
    """Join the first and the second channel of each pair: the inverse of `split_pairs`."""
    if layout == "half":
        return torch.cat([first, second], -1)
    return torch.stack([first, second], -1).flatten(-2)
