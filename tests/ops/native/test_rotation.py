"""The C++ rotation gives the same bits as PyTorch's operations, in every order of memory."""

import itertools

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.ops import rotate as module
from ordinate.ops.native import build, rotation
from ordinate.ops.rotate import Rotation

LAYOUTS = ["half", "interleaved"]
TYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("rotation")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def calls(_compiler, monkeypatch):
    """How often C++ was asked: it is switched on, however small the tensor."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(module, "MIN_NATIVE_ELEMENTS", 0)
    made, turn = [], rotation.rotate
    monkeypatch.setattr(rotation, "rotate", lambda *given, **named: made.append(given) or turn(*given, **named))
    return made


def ordered(x):
    """The same numbers in other orders of memory; the channels of the last do not lie side by side."""
    b, h, n, d = x.shape
    wide = torch.randn(b, n, h, 3 * d).to(x.dtype)
    wide[..., d : 2 * d] = x.transpose(1, 2)
    second = torch.randn(b, h, n, 2 * d).to(x.dtype)
    second[..., ::2] = x
    tokens_first = x.transpose(1, 2).contiguous().transpose(1, 2)
    return [x, tokens_first, wide[..., d : 2 * d].transpose(1, 2), second[..., ::2]]


def plainly(turning, x, back=False):
    return turning._in_pieces(x, back)


def wave(rows, heads, n, pairs, layout):
    return Rotation(*torch.randn(2, rows, heads, n, pairs, dtype=torch.float64).unbind(), layout)


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_it_gives_the_same_bits_in_every_order_of_memory(type, layout, calls):
    shapes = [(8, 4), (10, 2), (7, 3), (64, 32), (70, 32), (128, 64), (96, 16)]
    for n, (d, pairs), rows, heads in itertools.product([0, 1, 7, 513], shapes, [1, 2], [1, 3]):
        turning = wave(rows, heads, n, pairs, layout)
        for x in ordered(torch.randn(2, 3, n, d).to(type)):
            before = x.clone()
            for back in (False, True):
                out = turning.apply(x, back)
                assert out.equal(plainly(turning, x, back)), (n, d, pairs, x.stride())
                assert out.dtype == type
            assert x.equal(before)
    assert calls


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_large_results_and_two_threads_change_no_bit(type, layout):
    turning = wave(1, 1, 1100, 32, layout)
    for x in ordered(torch.randn(1, 8, 1100, 64).to(type)):
        alone = turning.apply(x, False)
        try:
            torch.set_num_threads(2)
            assert turning.apply(x, False).equal(alone)
        finally:
            torch.set_num_threads(1)
        assert alone.equal(plainly(turning, x))
        odd = x[:, :, 1:]
        assert Rotation(turning.cos[:, :, 1:], turning.sin[:, :, 1:], layout)(odd).equal(alone[:, :, 1:])


@pytest.mark.parametrize("width", [64, 72])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_heads_are_rotated_together_whatever_their_number(type, layout, width):
    turning = wave(1, 1, 70, 32, layout)
    for heads in range(1, 10):
        x = torch.randn(2, heads, 70, width).to(type)
        assert turning.apply(x, False).equal(plainly(turning, x)), heads


@pytest.mark.parametrize("pairs", [4, 16, 32, 64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bfloat16_of_every_size_is_rounded_to_nearest_and_ties_to_even(layout, pairs):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(torch.bfloat16).view(1, 2, -1, 2 * pairs)
    # some processors flush what becomes subnormal
    x = x.where(x.isfinite() & (x.abs() > 1e-35), torch.ones_like(x))
    # times 1 + 2^-8 or 1 - 2^-8 each odd number lies halfway between two others
    cos = 1 + torch.tensor([2.0**-8, -(2.0**-8)], dtype=torch.float64).repeat(pairs // 2).expand(1, 1, x.shape[2], -1)
    turning = Rotation(cos, torch.zeros_like(cos), layout)
    out = turning.apply(x, False)
    assert out.equal(plainly(turning, x))
    exact = x.float() * turning._tables(torch.float32, x, False)[0]
    ties = exact.view(torch.int32) % 2**16 == 2**15
    assert ties.any()
    assert (out[ties].view(torch.int16) % 2 == 0).all()


@pytest.mark.parametrize("pairs", [4, 16, 32, 64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_single_tie_among_other_numbers_is_rounded_to_even(layout, pairs):
    # token n has its tie at channel n: 1 + 2^-8 lies halfway between 1 and 1 + 2^-7
    tokens, width = torch.arange(2 * pairs), 2 * pairs
    x = torch.randn(1, 2, width, width).bfloat16()
    x[:, :, tokens, tokens] = 1.0
    pair = tokens % pairs if layout == "half" else tokens // 2
    turning = wave(1, 1, width, pairs, layout)
    turning.cos[:, :, tokens, pair] = 1 + 2.0**-8
    turning.sin[:, :, tokens, pair] = 0.0
    out = turning.apply(x, False)
    assert (out[:, :, tokens, tokens] == 1.0).all()
    assert out.equal(plainly(turning, x))


@pytest.mark.parametrize("width", [40, 64, 128])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_numbers_that_are_not_finite_spoil_their_pair_alone(type, layout, width):
    x = torch.randn(1, 2, 5, width).to(type)
    x[0, 0, 1, 3], x[0, 1, 2, 7], x[0, 1, 4, 5] = float("nan"), float("inf"), float("nan")
    turning = Rotation.by(torch.rand(1, 5, width // 2, dtype=torch.float64), layout)
    out = turning.apply(x, False)
    partner = (lambda c: c + width // 2) if layout == "half" else (lambda c: c - 1)
    spoilt = torch.zeros(x.shape, dtype=torch.bool)
    for head, token, channel in ((0, 1, 3), (1, 2, 7), (1, 4, 5)):
        spoilt[0, head, token, [channel, partner(channel)]] = True
    assert torch.equal(~out.isfinite(), spoilt)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_way_back_turns_back_and_may_be_gone_twice(layout, calls):
    turning = Rotation.by(torch.randn(1, 5, 16, dtype=torch.float64), layout)
    x = torch.randn(2, 2, 5, 36, requires_grad=True)
    out = turning(x)
    (slope,) = torch.autograd.grad(out, x, out, create_graph=True)
    torch.testing.assert_close(slope, x)
    (twice,) = torch.autograd.grad(slope.square().sum(), x)
    torch.testing.assert_close(twice, 2 * x)
    assert len(calls) >= 3


def test_a_decoder_marks_its_tokens_by_it(calls):
    model = Decoder(Shape(vocabulary=9, width=32, layers=2, heads=4, scheme="rope"))
    model(torch.arange(8)[None]).sum().backward()
    assert len(calls) == 8


def test_other_types_and_small_tensors_go_without(calls, monkeypatch):
    turning = wave(1, 1, 3, 4, "half")
    for type in (torch.float16, torch.float64):
        turning(torch.randn(1, 2, 3, 8).to(type))
    monkeypatch.setattr(module, "MIN_NATIVE_ELEMENTS", 49)
    with monkeypatch.context() as patch:
        patch.setattr(build, "is_loaded", lambda name: False)
        turning(torch.randn(1, 2, 3, 8))
    assert not calls
    # once built, the kernel is used for small inputs too
    turning(torch.randn(1, 2, 3, 8))
    monkeypatch.setattr(module, "MIN_NATIVE_ELEMENTS", 48)
    turning(torch.randn(1, 2, 3, 8))
    assert len(calls) == 2


def test_it_can_be_switched_off(calls, monkeypatch):
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    wave(1, 1, 3, 4, "half")(torch.randn(1, 2, 3, 8))
    assert not calls


def test_a_sign_that_is_lost_is_noticed(monkeypatch):
    turn = rotation.rotate
    monkeypatch.setattr(rotation, "rotate", lambda *given, back, **others: turn(*given, back=False, **others))
    turning, x = wave(1, 1, 3, 4, "half"), torch.randn(1, 2, 3, 8)
    assert turning.apply(x, False).equal(plainly(turning, x))
    assert not turning.apply(x, True).equal(plainly(turning, x, True))
