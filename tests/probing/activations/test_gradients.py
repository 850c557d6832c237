"""Gradients of a metric with respect to activations, beside finite differences of patched activations."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.intervention import patch
from ordinate.probing.activations.names import activation_names
from ordinate.probing.activations.recording import record
from ordinate.testing.analytic_model import AnalyticModel

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parents[1] / "adapters" / "families.py"))
QUICK = ("llama", "bloom")
NAMES = [
    pytest.param(x, marks=() if x in QUICK else pytest.mark.extended)
    for x in (*FAMILIES["DECODERS"], *FAMILIES["ENCODERS"])
]
IDS = torch.randint(4, 20, (2, 7), generator=torch.Generator().manual_seed(0))


class Plain(nn.Module):
    """A module that nobody has told us of."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(12, 2, 24, dropout=0.1, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(12, 20)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def ours():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, scheme="rope", max_length=32))
    return attach(model.double().eval())


def plain():
    torch.manual_seed(0)
    return attach(Plain().double().eval())


def metric(out):
    """A number that depends on every token, by a direction drawn once."""
    way = torch.randn(out.shape[1:], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (out.double() * way).sum()


def check_against_differences(model, name, layer, *, narrow=False):
    """Compare the gradient along a direction with central differences of the metric under patching.

    Norms or angles of some families are computed in float32 (`narrow`): their differences need larger steps.
    """
    has_logits = model.forward(Inputs(IDS)).logits is not None
    seen = record(model, IDS, [name, "resid_post"], logits=has_logits, gradients=True)
    metric(seen.logits if has_logits else seen["resid_post", model.info.layers - 1]).backward()
    x = seen[name, layer]
    own = x.detach()
    visible = own > -1e4
    way = torch.randn(own.shape, generator=torch.Generator().manual_seed(2), dtype=own.dtype) * visible
    way = way * own[visible].square().mean().sqrt()
    step = 1e-3 if narrow else 1e-5

    def value(by):
        out = patch(model, name, lambda own: own + by * way, layers=layer).forward(Inputs(IDS))
        return metric(out.logits if has_logits else out.residual)

    by_differences = float(value(step) - value(-step)) / (2 * step)
    # size of the derivative in a random direction
    usual = float(x.grad.norm() * way.norm()) / own.numel() ** 0.5
    assert usual > 0, name
    assert abs(float((x.grad * way).sum()) - by_differences) <= (0.03 if narrow else 1e-5) * usual, name


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (ours, ("resid_pre", "rot_k", "attn_scores", "z")),
        (plain, ("z",)),
        pytest.param(ours, None, marks=pytest.mark.extended),
        pytest.param(plain, None, marks=pytest.mark.extended),
    ],
)
def test_gradients_of_every_activation_are_those_of_finite_differences(make, names):
    model = make()
    for name in names or activation_names(model):
        check_against_differences(model, name, 0)
        if names is None:
            check_against_differences(model, name, 1)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences_in_every_family(name):
    model = FAMILIES["subject"](name)
    # T5 computes the variance of its norms in float32, without effect on what other tests compare
    narrow = name == "t5" or FAMILIES["ALL"][name][2] > 1e-6
    for activation in ("resid_pre", "v", "z") if name in QUICK else ("resid_pre", "q", "v", "pattern", "z"):
        check_against_differences(model, activation, 0, narrow=narrow)


def test_a_replacement_that_requires_gradients_receives_them():
    model = ours()
    steer = torch.zeros(16, dtype=torch.float64, requires_grad=True)
    steered = patch(model, "resid_post", lambda x: x + steer, layers=0)
    metric(steered.forward(Inputs(IDS, gradients=True)).logits).backward()
    seen = record(model, IDS, "resid_post", logits=True, gradients=True)
    metric(seen.logits).backward()
    torch.testing.assert_close(steer.grad, seen["resid_post", 0].grad.sum((0, 1)))
    # of an ablated head nothing depends on what it was
    gone = patch(model, "z", torch.zeros_like, layers=1, heads=2)
    of_gone = record(gone, IDS, "q", logits=True, gradients=True)
    metric(of_gone.logits).backward()
    assert not of_gone["q", 1].grad[:, 2].any()
    assert of_gone["q", 1].grad[:, 1].any()


def test_values_and_modes_are_those_without_gradients():
    model = ours()
    for own in model.model.parameters():
        own.requires_grad_(False)
    model.model.train()
    names = list(activation_names(model))
    seen = record(model, IDS, names, logits=True, gradients=True)
    usual = record(model, IDS, names, logits=True)
    for key in usual:
        torch.testing.assert_close(seen[key].detach(), usual[key])
    torch.testing.assert_close(seen.logits.detach(), usual.logits)
    metric(seen.logits).backward()
    assert model.model.training
    assert all(seen[key].grad is not None for key in seen)
    assert not any(x.requires_grad for x in (*usual.values(), usual.logits))
    with torch.no_grad():
        assert record(model, IDS, "z", gradients=True)["z", 0].requires_grad


def test_gradients_begin_at_the_activation_of_a_model_without_parameters():
    model = AnalyticModel("learned")
    seen = record(model, IDS, "z", logits=True, gradients=True)
    metric(seen.logits).backward()
    assert seen["z", 0].grad.abs().max() > 0


def test_what_has_no_gradient_is_refused():
    model = ours()
    with pytest.raises(ValueError, match="gradients are of one batch; got 2; record each by itself"):
        record(model, [IDS, IDS], "z", gradients=True)
    with pytest.raises(ValueError, match="gradients are of whole activations; got reduce; reduce them afterwards"):
        record(model, IDS, "z", reduce=lambda x: x.sum(1), gradients=True)
    torch.manual_seed(0)
    blind = attach(Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, scheme="none")))
    with pytest.raises(NotApplicable, match=r"there is no rot_q in layer 0, 1; .* has: resid_pre"):
        record(blind, IDS, "rot_q", gradients=True)
