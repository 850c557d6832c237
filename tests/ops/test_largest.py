"""The largest magnitude of a tensor: in C++ and by PyTorch, in every layout, NaN and infinity included."""

import math

import pytest
import torch

from ordinate.ops import largest
from ordinate.ops.largest import largest_entry
from ordinate.ops.native import build, scan
from ordinate.ops.native.largest import largest_magnitude

LAYOUTS = {
    "contiguous": lambda: torch.randn(3, 5, 70, 33),
    "token-major": lambda: torch.randn(3, 70, 5, 33).transpose(1, 2),
    "part of a merged projection": lambda: (
        torch.randn(3, 70, 15 * 33)[..., :165].unflatten(-1, (5, 33)).transpose(1, 2)
    ),
    "filled part of a cache": lambda: torch.randn(3, 5, 90, 33)[:, :, 11:81],
    "steps": lambda: torch.randn(4, 8, 300, 64)[::2, 1::3, 5:250:3],
    "broadcast": lambda: torch.randn(1, 1, 7, 40).expand(2, 3, 7, 40),
    "one axis, longer than a task": lambda: torch.randn(70001),
    "backwards": lambda: torch.randn(40, 50).t(),
    "five axes": lambda: torch.randn(2, 3, 2, 5, 70)[:, :2, :, :3],
    "one number": lambda: torch.randn(1, 1, 1, 1),
}


@pytest.fixture
def in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("largest")
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_largest_magnitude_in_every_layout(layout, type, threads, in_cpp):
    torch.manual_seed(0)
    x = LAYOUTS[layout]()
    # converted in its own memory, so that the layout stays
    x = x if type == torch.float32 else x.to(type).as_strided(x.shape, x.to(type).stride())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert largest_magnitude(x) == x.abs().max().item()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layouts_are_read_where_they_lie(layout, in_cpp):
    x = LAYOUTS[layout]()
    # the largest is at the last place, and larger ones beside the view, in the memory that it shares
    torch.as_strided(x, (x.untyped_storage().nbytes() // 4,), (1,), 0).fill_(9.0)
    x.fill_(1.0)
    x[(-1,) * x.ndim] = -2.0
    assert largest_magnitude(x) == 2.0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("kernels", ["on", "off"])
def test_numbers_that_are_not_finite_are_found(number, kernels, in_cpp, monkeypatch):
    if kernels == "off":
        monkeypatch.setattr(largest, "_fits", lambda x: False)
    for place in ((0, 0, 0), (1, 77, 2), (3, 199, 2)):
        x = torch.randn(4, 3, 200, 8).transpose(1, 2)
        # an infinity beside it, above which NaN stands
        x[place] = torch.tensor([0.0, math.inf, number, *[0.0] * 5])
        found = largest_entry(x)
        assert math.isnan(found) if math.isnan(number) else found == math.inf
    one = torch.full((2, 3), number)
    assert math.isnan(largest_entry(one)) if math.isnan(number) else largest_entry(one) == one.abs().max()


def test_numbers_far_apart_are_left_to_pytorch(in_cpp):
    assert largest_magnitude(torch.randn(5, 8)[:, ::2]) is None
    assert largest_magnitude(torch.randn(3, 3, 3, 3, 3, 3)[:2, :2, :2, :2, :2, :2]) is None
    assert largest_entry(torch.tensor([[1.0, 9.0], [-3.0, 9.0]])[:, ::2]) == 3.0
    assert largest_entry(torch.zeros(0, 3)) == 0.0
    assert largest_entry(torch.tensor([-2.0, 1.0], dtype=torch.float64)) == 2.0
