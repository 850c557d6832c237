"""Attention whose operations make_fx records, as torch.func.linearize does."""

import pytest
import torch
from torch.func import grad, jvp, linearize
from torch.fx.experimental.proxy_tensor import make_fx

from ordinate import Geometry, attend
from ordinate.core.tensors import is_recorded
from ordinate.schemes import T5, Cope, Rope, Shaw

# PyTorch itself calls it when forward-mode rules are first loaded
LOADING = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated", "ignore:Attempted to insert")
SCHEMES = [T5(heads=2), Rope(head_width=8), Shaw(head_width=8), Cope(head_width=8, max_positions=4)]


def loss_of(scheme, used):
    """A function of queries; the placed scheme was used before, or not."""
    k, v = torch.randn(2, 2, 11, 8, dtype=torch.float64)
    at = scheme.double().at(Geometry.causal(11))
    if used:
        attend(k[None], k[None], v[None], at)
    return lambda q: attend(q[None], k[None], v[None], at)[0].pow(3).sum()


@LOADING
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
def test_a_linearised_function_is_the_derivative(scheme, used):
    loss, (q, along) = loss_of(scheme, used), torch.randn(2, 2, 11, 8, dtype=torch.float64)
    value, derivative = linearize(loss, q)
    exact, tangent = jvp(loss, (q,), (along,))
    torch.testing.assert_close(value, exact)
    torch.testing.assert_close(derivative(along), tangent)


@LOADING
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
def test_a_recorded_gradient_is_one_of_other_numbers_too(scheme):
    loss, (q, other) = loss_of(scheme, used=False), torch.randn(2, 2, 11, 8, dtype=torch.float64)
    recorded = make_fx(grad(loss))(q)
    torch.testing.assert_close(recorded(other), grad(loss)(other))


def test_a_record_is_noticed_while_it_is_made():
    found = []
    make_fx(lambda x: found.append(is_recorded()) or x + 1)(torch.ones(2))
    assert found == [True]
    assert not is_recorded()
