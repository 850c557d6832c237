# pyrefly: ignore-errors
"""Rotation of pairs of channels in Triton: one pass over memory.

    (a, b) -> (a cos - b sin, b cos + a sin)

for each pair of channels of a token, with the cosine and sine of the pair there.
"""

from typing import Any, NamedTuple

import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.kernel import Strided, address, kernel, launch, power_of_two, shared

# pairs of channels that a program holds: a vector of 16 bytes in bfloat16 for each thread
PAIRS_AT_ONCE = 1024
# heads of a program, which share one set of angles that is loaded once
HEADS_AT_ONCE = 4
OPTIONS = {"num_warps": 4, "num_stages": 1}

Other = tuple[Tensor, Tensor]
"""A second tensor to rotate, and where its result is stored."""


class Form(NamedTuple):
    """Constants of a compiled kernel.

    Args:
        rows: tokens of a program.
        heads: heads of a program, one after the other.
        pairs: rotated pairs.
        width: channels of a head.
        padded: power of two that holds the pairs.
        padded_rest: power of two that holds the channels behind the rotated ones.
        shared: whether all heads have the same angles.
        interleaved: channels pair up with their neighbours; otherwise the first half with the second.
        back: apply the transpose, with -sin.
    """

    rows: Any
    heads: Any
    pairs: Any
    width: Any
    padded: Any
    padded_rest: Any
    shared: Any
    interleaved: Any
    back: Any


@kernel
def rotate_pairs(x, out, heads, other, waves, tokens, FORM: tl.constexpr):
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of channels; channels behind the pairs are copied.

    A program has some tokens of some heads of one sequence. `out` must not be `x`: where a tile has fewer numbers
    than the program has threads, Triton may load some twice, and one thread store before another loads. `other` is a
    second tensor with its result and its number of heads, which all have the same angles, or None. `waves` are
    cosines and sines.
    """
    group = tl.program_id(1)
    if other is None:
        rotate_heads(x, out, group * FORM.heads, heads, waves, tokens, FORM)
    else:
        second, its_out, its_heads = other
        groups = tl.cdiv(heads, FORM.heads)
        if group < groups:
            rotate_heads(x, out, group * FORM.heads, heads, waves, tokens, FORM)
        else:
            rotate_heads(second, its_out, (group - groups) * FORM.heads, its_heads, waves, tokens, FORM)


@kernel
def rotate_heads(x, out, first_head, heads, waves, tokens, FORM: tl.constexpr):
    """Rotate some tokens of some heads of one sequence."""
    cos, sin = waves
    batch = tl.program_id(2)
    i = tl.program_id(0) * FORM.rows + tl.arange(0, FORM.rows)
    m = tl.arange(0, FORM.padded)
    inside = (i < tokens)[:, None] & (m < FORM.pairs)[None, :]
    if FORM.shared:
        c, s = load_wave(cos, batch, 0, i, m, inside), load_wave(sin, batch, 0, i, m, inside)
    for head in range(first_head, tl.minimum(first_head + FORM.heads, heads)):
        if not FORM.shared:
            c, s = load_wave(cos, batch, head, i, m, inside), load_wave(sin, batch, head, i, m, inside)
        turn = -s if FORM.back else s
        source, target = address(x, batch, head, i), address(out, batch, head, i)
        if FORM.interleaved:
            # neighbours are loaded together: every second number alone would waste half of each transaction
            channel = tl.arange(0, 2 * FORM.padded)
            real = (i < tokens)[:, None] & (channel < 2 * FORM.pairs)[None, :]
            both = tl.load(source + channel[None, :] * x.channel, mask=real, other=0.0).to(tl.float32)
            a, b = tl.split(tl.reshape(both, (FORM.rows, FORM.padded, 2)))
            made = tl.reshape(tl.join(a * c - b * turn, b * c + a * turn), (FORM.rows, 2 * FORM.padded))
            tl.store(target + channel[None, :] * out.channel, made, mask=real)
        else:
            a = tl.load(source + m[None, :] * x.channel, mask=inside, other=0.0).to(tl.float32)
            b = tl.load(source + (m + FORM.pairs)[None, :] * x.channel, mask=inside, other=0.0).to(tl.float32)
            tl.store(target + m[None, :] * out.channel, a * c - b * turn, mask=inside)
            tl.store(target + (m + FORM.pairs)[None, :] * out.channel, b * c + a * turn, mask=inside)
        if FORM.width > 2 * FORM.pairs:
            rest = 2 * FORM.pairs + tl.arange(0, FORM.padded_rest)
            real = (i < tokens)[:, None] & (rest < FORM.width)[None, :]
            still = tl.load(source + rest[None, :] * x.channel, mask=real, other=0.0)
            tl.store(target + rest[None, :] * out.channel, still, mask=real)


@kernel
def load_wave(wave, batch, head, i, m, inside):
    """Cosines or sines of some tokens."""
    return tl.load(address(wave, batch, head, i) + m[None, :] * wave.channel, mask=inside, other=0.0)


def rotate(
    x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, back: bool, other: Other | None = None
) -> None:
    """Rotate the pairs of `x` into `out`.

    Args:
        x: float32, bfloat16 or float16, with any strides.
        out: as `x`, of memory of its own.
        cos: float32 (batch or 1, heads or 1, tokens, pairs), as is sin.
        sin: multiplies the partner.
        interleaved: channels pair up with their neighbours; otherwise the first half with the second.
        back: apply the transpose, with -sin.
        other: a second tensor with its result, as `x` but for the number of heads, where all heads share the angles.
    """
    batch, heads, tokens, width = x.shape
    pairs = cos.shape[3]
    if not x.numel():
        return
    padded, rest = power_of_two(pairs), power_of_two(width - 2 * pairs)
    rows = max(1, PAIRS_AT_ONCE // max(padded, rest))
    alike = cos.shape[1] == sin.shape[1] == 1
    form = Form(rows, HEADS_AT_ONCE, pairs, width, padded, rest, alike, interleaved, back)
    groups, beside = -(-heads // HEADS_AT_ONCE), None
    if other is not None:
        second, its_out = other
        beside = Strided(second, *second.stride()), Strided(its_out, *its_out.stride()), second.shape[1]
        groups += -(-second.shape[1] // HEADS_AT_ONCE)
    given = Strided(x, *x.stride()), Strided(out, *out.stride()), heads, beside, (shared(cos), shared(sin))
    launch(rotate_pairs, (-(-tokens // rows), groups, batch), (*given, tokens, form), OPTIONS)
