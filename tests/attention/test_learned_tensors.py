"""Gradients and stale results where a scheme learns from tensors that are not, or no longer, its parameters."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils import parametrize

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions
from ordinate.attention.backends import custom_formula, native, offset_bias, relative_vectors, row_blocks
from ordinate.ops.relative import Projection
from ordinate.schemes import T5, Alibi, Cope, Deberta, Fire, Learned, Pope, Shaw
from ordinate.schemes.deberta import DebertaVersion
from ordinate.testing.backend import random_qkv

WHERE = Geometry.causal(13)
SCHEMES = {
    "t5": lambda: T5(heads=4),
    "alibi": lambda: Alibi(heads=4, trainable=True),
    "fire": lambda: Fire(heads=4),
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "cope": lambda: Cope(head_width=8, max_positions=4),
}


@pytest.fixture(autouse=True)
def _every_size(monkeypatch):
    """Backends for long sequences take short ones."""
    for module in (native, offset_bias, relative_vectors, row_blocks):
        monkeypatch.setattr(module, "MIN_PAIRS", 1)
    for name in ("MIN_CAUSAL_PAIRS", "MIN_OTHER_PAIRS"):
        monkeypatch.setattr(row_blocks, name, 1)
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 30)


def attributes_instead(scheme):
    """Replace each parameter by itself plus an adapter; return the adapters."""
    adapters = []
    for part in list(scheme.modules()):
        for name, x in list(part._parameters.items()):
            adapters.append(torch.zeros_like(x, requires_grad=True))
            delattr(part, name)
            setattr(part, name, x.detach() + adapters[-1])
    return adapters


def gradients_of(out, tensors):
    torch.manual_seed(1)
    return torch.autograd.grad(out, tensors, torch.randn_like(out), allow_unused=True)


def assert_same(made, exact):
    assert any(x is not None and x.abs().max() > 0 for x in exact)
    for one, other in zip(made, exact, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", [{}, {"score_options": ScoreOptions(softcap=2.0)}], ids=["plain", "softcap"])
@pytest.mark.parametrize("name", SCHEMES)
def test_attributes_in_place_of_parameters_have_their_gradients(name, given):
    scheme = SCHEMES[name]()
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    exact = gradients_of(attend(q, k, v, scheme.at(WHERE), backend="reference", **given), [*scheme.parameters()])
    adapters = attributes_instead(scheme)
    # one that was made without gradients has none
    at = scheme.at(WHERE)
    with torch.no_grad():
        attend(q, k, v, at, **given)
    assert_same(gradients_of(attend(q, k, v, at, **given), adapters), exact)


@pytest.mark.parametrize("name", ["row_blocks", "custom_formula"])
def test_backends_that_differentiate_by_parameters_refuse_other_tensors(name):
    scheme, given = T5(heads=4), {"score_options": ScoreOptions(softcap=2.0)} if name == "custom_formula" else {}
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    attend(q, k, v, scheme.at(WHERE), backend=name, **given)
    attributes_instead(scheme)
    with pytest.raises(ValueError, match=r"it does not: the scheme learns from tensors that are not its parameters"):
        attend(q, k, v, scheme.at(WHERE), backend=name, **given)
    with torch.no_grad():
        attend(q, k, v, scheme.at(WHERE), backend=name, **given)


def test_projections_of_a_layer_have_their_gradients():
    scheme = Deberta(width=32, heads=4, head_width=8, version=DebertaVersion(shared=True))
    weights = [torch.randn(32, 32, requires_grad=True) for _ in range(2)]
    bound = scheme.bind_projections(*(Projection(weight, None) for weight in weights))
    # positions by which no table of vectors is read
    where = Geometry.from_positions(torch.arange(13)[None, :, None])
    q, k, v = random_qkv(where, kv_heads=4, dtype=torch.float32)
    made, exact = (
        gradients_of(attend(q, k, v, bound.at(where), backend=name), [*weights, scheme.table])
        for name in (None, "reference")
    )
    assert_same(made, exact)


@pytest.mark.parametrize("name", SCHEMES)
def test_parametrised_schemes_use_the_parametrisation(name):
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    scheme = SCHEMES[name]()
    other = copy.deepcopy(scheme)
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    for part, doubled in zip(list(scheme.modules()), list(other.modules()), strict=True):
        # PyTorch has no parametrisations of these names
        for key in part._parameters.keys() - {"keys", "values"}:
            nn.init.uniform_(part._parameters[key])
            doubled._parameters[key].data = 2 * part._parameters[key].detach()
            parametrize.register_parametrization(part, key, Twice())
    # the same numbers of both, where they are not doubled
    other.load_state_dict({**other.state_dict(), **{k: v for k, v in scheme.state_dict().items() if "." not in k}})
    for backend in (None, "reference", "row_blocks"):
        made, exact = (attend(q, k, v, x.at(WHERE), backend=backend) for x in (scheme, other))
        torch.testing.assert_close(made, exact)
        learned = [[p for p in x.parameters() if p.ndim] for x in (scheme, other)]
        made, exact = (gradients_of(y, x) for y, x in zip((made, exact), learned, strict=True))
        assert all(x is not None for x in made)


def test_changes_of_attributes_and_buffers_are_stale():
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    scheme = T5(heads=4)
    attributes_instead(scheme)
    at = scheme.at(WHERE)
    attend(q, k, v, at)
    scheme.table = scheme.table.detach() + 1
    with pytest.raises(ValueError, match="got one whose parameters have changed"):
        attend(q, k, v, at)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda at: pickle.loads(pickle.dumps(at))])
@pytest.mark.parametrize("name", SCHEMES)
def test_copies_of_a_placed_scheme_hold_nothing_of_the_original(name, copied):
    at = SCHEMES[name]().at(WHERE)
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    out, other = attend(q, k, v, at), copied(at)
    assert torch.equal(attend(q, k, v, other), out)
    assert explain(q, k, v, other) == explain(q, k, v, at)
    with torch.no_grad():
        for x in other.scheme.parameters():
            x.add_(1)
    with pytest.raises(ValueError, match="got one whose parameters have changed"):
        attend(q, k, v, other)


def test_a_copy_knows_whether_positions_are_embedded():
    at = Learned(width=32, max_length=20).at(WHERE)
    with pytest.raises(ValueError, match="embed"):
        copy.deepcopy(at).need_embedded()
    at.embed(torch.zeros(1, 13, 32))
    for one in (copy.deepcopy(at), pickle.loads(pickle.dumps(at))):
        one.need_embedded()


def test_an_ensemble_whose_members_differ_in_their_keys_only():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scheme = Pope(head_width=8, heads=4, init="uniform")

        def forward(self, q, k, v):
            return attend(q, k, v, self.scheme.at(WHERE))

    nets = [Net() for _ in range(3)]
    q, k, v = random_qkv(WHERE, kv_heads=4, dtype=torch.float32)
    made = vmap(lambda learned: functional_call(nets[0], learned, (q, k, v)))(stack_module_state(nets)[0])
    for one, net in zip(made, nets, strict=True):
        torch.testing.assert_close(one, net(q, k, v))


def test_a_sink_that_takes_nothing_has_no_gradient_of_nan():
    sinks = torch.tensor([0.0, float("-inf"), 1.0, 0.0], requires_grad=True)
    where = Geometry.cross(3, 0)
    q, k, v = random_qkv(where, kv_heads=4, dtype=torch.float32)
    out = attend(q, k, v, SCHEMES["t5"]().at(where), score_options=ScoreOptions(sinks=sinks))
    assert torch.equal(out, torch.zeros_like(out))
    assert gradients_of(out, [sinks])[0].eq(0).all()
