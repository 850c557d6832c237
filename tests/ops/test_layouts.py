import pytest
import torch

from ordinate.ops.layouts import OTHER, convert_channels, convert_projection
from ordinate.schemes import Rope

PLACES = {("half", 8): [0, 2, 4, 6, 1, 3, 5, 7], ("interleaved", 8): [0, 4, 1, 5, 2, 6, 3, 7]}
PLACES |= {("half", 4): [0, 2, 1, 3, 4, 5, 6, 7], ("interleaved", 6): [0, 3, 1, 4, 2, 5, 6, 7]}


@pytest.mark.parametrize(("to", "rotated"), PLACES)
def test_each_channel_is_permuted_as_the_layouts_define(to, rotated):
    came = convert_channels(torch.arange(8.0).expand(2, 3, 8), to=to, rotated=rotated)
    assert came[1, 2].long().tolist() == PLACES[to, rotated]
    if rotated == 8:
        assert convert_channels(torch.arange(8.0), to=to).long().tolist() == PLACES[to, 8]


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rotated", [None, 2, 6])
@pytest.mark.parametrize("heads", [1, 2, 7])
@pytest.mark.parametrize("to", OTHER)
def test_converting_there_and_back_is_bit_identical(to, heads, rotated, dtype):
    weight, bias = torch.randn(heads * 10, 9).to(dtype), torch.randn(heads * 10).to(dtype)
    for x in (weight, bias):
        there = convert_projection(x, head_width=10, to=to, rotated=rotated)
        assert there.equal(x) == (rotated == 2)
        assert convert_projection(there, head_width=10, to=OTHER[to], rotated=rotated).equal(x)


@pytest.mark.parametrize("to", OTHER)
def test_the_axis_of_the_heads_can_be_any(to):
    weight = torch.randn(12, 5)
    rows = convert_projection(weight, head_width=6, to=to)
    assert convert_projection(weight.T, head_width=6, to=to, axis=1).equal(rows.T)
    assert convert_projection(weight.T, head_width=6, to=to, axis=-1).is_contiguous()


@pytest.mark.parametrize("to", OTHER)
def test_converted_queries_rotate_bit_identically_in_the_new_layout(to):
    q, pos = torch.randn(2, 3, 5, 8), torch.tensor([0, 1, 7, 129, 100_000])[None, :, None]
    first = Rope(head_width=8, layout=OTHER[to]).encode_query(q, pos)
    second = Rope(head_width=8, layout=to).encode_query(convert_channels(q, to=to), pos)
    assert convert_channels(first, to=to).equal(second)


def test_a_converted_projection_gives_converted_queries_of_each_head():
    x, weight, bias = torch.randn(4, 9).double(), torch.randn(20, 9).double(), torch.randn(20).double()
    options = {"to": "interleaved", "rotated": 4}
    q = torch.nn.functional.linear(x, weight, bias).view(4, 2, 10)
    weight, bias = (convert_projection(part, head_width=10, **options) for part in (weight, bias))
    assert convert_channels(q, **options).equal(torch.nn.functional.linear(x, weight, bias).view(4, 2, 10))


def test_a_gradient_reaches_each_weight():
    weight = torch.randn(12, 5, requires_grad=True)
    (convert_projection(weight, head_width=6, to="half") * torch.arange(12.0)[:, None]).sum().backward()
    assert sorted(weight.grad[:, 0].tolist()) == list(range(12))


@pytest.mark.parametrize("rotated", [0, 3, 12, -2])
def test_the_rotated_channels_are_pairs_within_the_head(rotated):
    with pytest.raises(
        ValueError, match=f"must be even and at most the head width; got {rotated} of 10 channels; give an even"
    ):
        convert_channels(torch.zeros(10), to="half", rotated=rotated)


def test_an_odd_head_width_needs_the_number_of_rotated_channels():
    with pytest.raises(ValueError, match="rotated must be even and at most the head width; got 7 of 7 channels"):
        convert_channels(torch.zeros(7), to="half")
    assert convert_channels(torch.arange(7.0), to="half", rotated=4).tolist() == [0, 2, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("head_width", [7, 0, -4])
def test_the_axis_must_be_a_multiple_of_the_head_width(head_width):
    with pytest.raises(
        ValueError,
        match=f"must divide the axis of the heads' channels; got 12 channels for heads of {head_width}; give the",
    ):
        convert_projection(torch.zeros(12, 5), head_width=head_width, to="half")


@pytest.mark.usefixtures("untyped")
def test_an_unknown_layout_raises_an_error():
    with pytest.raises(ValueError, match=r"no layout is named 'halves'.*did you mean 'half'"):
        convert_channels(torch.zeros(8), to="halves")
