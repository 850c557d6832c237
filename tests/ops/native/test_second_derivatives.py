"""Second derivatives through the C++ kernels are those of the plain forms in float64."""

import pytest
import torch

from ordinate.core.geometry import Geometry
from ordinate.mixers.performer import Performer
from ordinate.mixers.rwkv4 import Rwkv4
from ordinate.mixers.rwkv6 import Rwkv6
from ordinate.mixers.rwkv7 import Rwkv7
from ordinate.ops.native import build, scan
from ordinate.schemes import NoPosition

KERNELS = {
    Rwkv4: ("wkv",),
    Rwkv6: ("recurrence", "gated_norm", "blend"),
    Rwkv7: ("recurrence", "correction", "gated_norm", "blend"),
    Performer: ("performer",),
}


@pytest.fixture(autouse=True)
def _built(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)


def second(mixer, x, where):
    leaves = [x.requires_grad_(), *(p for p in mixer.parameters() if p.requires_grad)]
    out, _ = mixer(x, NoPosition().at(where))
    first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True, materialize_grads=True)
    made = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, materialize_grads=True)
    return torch.cat([g.flatten() for g in made]).double()


@pytest.mark.extended
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("causal", [True, False])
def test_second_derivatives_in_cpp(kind, causal):
    for name in KERNELS[kind]:
        reason = build.unavailable_reason(name)
        if reason is not None:
            pytest.skip(reason)
    mixer = kind(width=16, heads=2) if kind is not Rwkv4 else kind(width=16)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x, where = torch.randn(2, 70, 16), (Geometry.causal if causal else Geometry.full)(70)
    mixer = mixer.eval()
    made = second(mixer, x, where)
    exact = second(mixer.double(), x.detach().double(), where)
    assert exact.abs().max() > 0.01
    assert (made - exact).abs().max() < 2e-4 * exact.abs().max()
