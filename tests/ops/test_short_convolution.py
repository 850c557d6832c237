import torch
from torch.nn.functional import conv1d, pad

from ordinate.ops.short_convolution import short_convolution


def test_it_is_a_causal_grouped_convolution():
    x, taps, bias = torch.randn(2, 11, 5).double(), torch.randn(5, 4).double(), torch.randn(5).double()
    expected = conv1d(pad(x.mT, (3, 0)), taps[:, None], bias, groups=5).mT
    torch.testing.assert_close(short_convolution(x, taps, bias)[0], expected)


def test_in_pieces_it_is_the_same_and_holds_no_inputs_alive():
    x, taps = torch.randn(2, 11, 5), torch.randn(5, 4)
    whole, end = short_convolution(x, taps)
    parts, recent = [], None
    for piece in x.split([1, 0, 2, 8], 1):
        y, recent = short_convolution(piece, taps, None, recent)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(recent, end)
    assert recent.untyped_storage().nbytes() == recent.numel() * 4
    assert end.equal(x[:, -3:])
