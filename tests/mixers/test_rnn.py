import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.rnn import Rnn
from ordinate.schemes import NoPosition

CAUSAL = NoPosition().at(Geometry.causal(9))


def reference(mixer, x, bend):
    """Reference recurrence, token by token."""
    cell, h, out = mixer.cell, torch.zeros(len(x), 8, dtype=x.dtype), []
    for token in x.unbind(1):
        h = bend(token @ cell.weight_ih_l0.T + cell.bias_ih_l0 + h @ cell.weight_hh_l0.T + cell.bias_hh_l0)
        out.append(h @ mixer.out.weight.T)
    return torch.stack(out, 1)


@pytest.mark.parametrize(("identity", "bend"), [(False, torch.tanh), (True, torch.relu)])
def test_it_is_its_formula(identity, bend):
    mixer, x = Rnn(width=8, identity=identity).double(), torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    leaves = [x, *mixer.parameters()]
    y, expected = mixer(x, CAUSAL)[0], reference(mixer, x, bend)
    assert torch.allclose(y, expected, atol=1e-13)
    weights = torch.randn_like(y)
    pairs = zip(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (y, expected)), strict=True)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in pairs)


def test_with_identity_it_begins_by_adding_up_what_it_reads():
    mixer = Rnn(width=8, identity=True)
    assert torch.equal(mixer.cell.weight_hh_l0, torch.eye(8))
    assert 0.0005 < mixer.cell.weight_ih_l0.std() < 0.0015
    with torch.no_grad():
        mixer.cell.weight_ih_l0.copy_(torch.eye(8))
        mixer.out.weight.copy_(torch.eye(8))
    x = torch.rand(1, 9, 8)
    assert torch.allclose(mixer(x, CAUSAL)[0], x.cumsum(1), atol=1e-5)


def test_no_width_is_refused(untyped):
    with pytest.raises(ValueError, match="width must be above zero; got 0"):
        Rnn(width=0)
