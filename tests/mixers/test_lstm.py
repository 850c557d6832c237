import torch

from ordinate import Geometry
from ordinate.mixers.lstm import Lstm
from ordinate.schemes import NoPosition


def test_it_is_its_formula():
    mixer, x = Lstm(width=8).double(), torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    cell, out = mixer.cell, []
    h = c = torch.zeros(2, 8, dtype=torch.float64)
    for token in x.unbind(1):
        gates = token @ cell.weight_ih_l0.T + cell.bias_ih_l0 + h @ cell.weight_hh_l0.T + cell.bias_hh_l0
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        out.append(h @ mixer.out.weight.T)
    y, state = mixer(x, NoPosition().at(Geometry.causal(9)))
    expected, leaves = torch.stack(out, 1), [x, *mixer.parameters()]
    assert torch.allclose(y, expected, atol=1e-13)
    assert torch.allclose(state.h, torch.stack([h, c], 1), atol=1e-13)
    weights = torch.randn_like(y)
    pairs = zip(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (y, expected)), strict=True)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in pairs)


def test_it_begins_by_forgetting_little():
    mixer, x = Lstm(width=8), torch.zeros(1, 9, 8)
    assert mixer.cell.bias_ih_l0[8:16].sigmoid().min() > 0.73
    assert mixer(x, NoPosition().at(Geometry.causal(9)))[1].h.abs().max() == 0
