"""Activation functions against their formulas, one number at a time."""

import math
from typing import get_args

import pytest
import torch

from ordinate.models.activation import LEARNED, LearnedActivation, Xielu
from ordinate.models.feedforward import FEEDFORWARD_KINDS, GATED, FeedForward, FeedForwardKind, Gate
from ordinate.ops.activation import ACTIVATIONS, Activation


def phi(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softplus(x):
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


FORMULAS = {
    "gelu": lambda x: x * phi(x),
    "gelu_10": lambda x: min(max(x * phi(x), -10), 10),
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "laplace": lambda x: phi((x - 0.707107) / 0.282095),
    "leaky_relu": lambda x: max(x, 0.01 * x),
    "linear": lambda x: x,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: max(x, 0),
    "relu2": lambda x: max(x, 0) ** 2,
    "relu6": lambda x: min(max(x, 0), 6),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sqrtsoftplus": lambda x: math.sqrt(softplus(x)),
    "tanh": math.tanh,
}
X = torch.cat([torch.linspace(-13, 13, 53), torch.linspace(-1, 1, 41)]).double()


def test_every_name_has_a_function():
    assert set(get_args(Activation)) == set(ACTIVATIONS) == set(FORMULAS)
    assert set(get_args(Gate)) == set(GATED)
    assert set(get_args(LearnedActivation)) == set(LEARNED)
    assert set(get_args(FeedForwardKind)) == set(FEEDFORWARD_KINDS)
    # each function has one gated form
    assert sorted(GATED.values()) == sorted(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_formula(name):
    expected = torch.tensor([FORMULAS[name](x) for x in X.tolist()], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[name](X), expected, atol=1e-12, rtol=1e-12)
    # a mutant: another function, which differs at some number
    others = [FORMULAS[other] for other in FORMULAS if other != name]
    assert all(
        any(abs(other(x) - y) > 1e-4 for x, y in zip(X.tolist(), expected.tolist(), strict=True)) for other in others
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gradient_of_an_activation_is_right(name):
    # away from the corners of piecewise functions
    x = (X[::5] + 0.0123).requires_grad_()
    assert torch.autograd.gradcheck(ACTIVATIONS[name], x)


@pytest.mark.parametrize("kind", GATED)
def test_a_gate_multiplies_by_its_activation(kind):
    inner = FeedForward(kind, 4, 6).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    gate, value = (x @ part.T for part in inner.widen.weight.split(6))
    bent = gate.detach().clone().apply_(FORMULAS[GATED[kind]])
    torch.testing.assert_close(inner(x), (bent * value) @ inner.narrow.weight.T, atol=1e-12, rtol=1e-12)


def xielu(x, alpha_p, alpha_n, least=-1e-6):
    above, below = softplus(alpha_p), 0.5 + softplus(alpha_n)
    return above * x * x + 0.5 * x if x > 0 else below * (math.exp(min(x, least)) - 1 - x) + 0.5 * x


def test_xielu_is_its_formula_and_its_parameters_learn():
    bend = Xielu().double()
    assert (softplus(bend.alpha_p.item()), 0.5 + softplus(bend.alpha_n.item())) == pytest.approx((0.8, 0.8))
    bend.alpha_p.data.fill_(0.3)
    bend.alpha_n.data.fill_(-0.7)
    expected = torch.tensor([xielu(x, 0.3, -0.7) for x in X.tolist()], dtype=torch.float64)
    torch.testing.assert_close(bend(X), expected, atol=1e-9, rtol=1e-9)
    # mutants: the two slopes exchanged, and one without the linear part
    for given in ((-0.7, 0.3), (0.3, -1.4)):
        assert (torch.tensor([xielu(x, *given) for x in X.tolist()]).double() - expected).abs().max() > 1e-2
    x = (X[::5] + 0.0123).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: bend(x), (x, *bend.parameters()))
    assert set(bend.state_dict()) == {"alpha_p", "alpha_n", "beta", "eps"}


@pytest.mark.parametrize("kind", LEARNED)
def test_a_feedforward_with_a_learned_activation_trains_it(kind):
    inner = FeedForward(kind, 4, 6)
    inner(torch.randn(1, 3, 4)).square().sum().backward()
    found = [name for name, one in inner.named_parameters() if name.startswith("activation.") and one.grad.any()]
    assert len(found) == (2 if kind == "xielu" else 1)
