import torch

from ordinate import Geometry
from ordinate.mixers.gru import Gru
from ordinate.schemes import NoPosition


def test_it_is_its_formula():
    mixer, x = Gru(width=8).double(), torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    (w_r, w_z, w_n), (b_r, b_z, b_n) = mixer.cell.weight_ih_l0.split(8), mixer.cell.bias_ih_l0.split(8)
    (u_r, u_z, u_n), (c_r, c_z, c_n) = mixer.cell.weight_hh_l0.split(8), mixer.cell.bias_hh_l0.split(8)
    h, out = torch.zeros(2, 8, dtype=torch.float64), []
    for token in x.unbind(1):
        r = (token @ w_r.T + b_r + h @ u_r.T + c_r).sigmoid()
        z = (token @ w_z.T + b_z + h @ u_z.T + c_z).sigmoid()
        new = (token @ w_n.T + b_n + r * (h @ u_n.T + c_n)).tanh()
        h = (1 - z) * new + z * h
        out.append(h @ mixer.out.weight.T)
    y, expected, leaves = (
        mixer(x, NoPosition().at(Geometry.causal(9)))[0],
        torch.stack(out, 1),
        [x, *mixer.parameters()],
    )
    assert torch.allclose(y, expected, atol=1e-13)
    weights = torch.randn_like(y)
    pairs = zip(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (y, expected)), strict=True)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in pairs)
