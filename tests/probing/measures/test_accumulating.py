import pytest
import torch

from ordinate.probing._adapter import Inputs
from ordinate.probing.measures.attention_by_offset import ProfileHooks, attention_profile
from ordinate.probing.measures.samples import ForwardBudget, by_layer, residual_streams, subsample
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


@pytest.fixture(scope="module")
def subject():
    return AnalyticModel("learned")


def test_hooks_that_add_up_refuse_a_second_series(subject):
    few = subsample(subject.info, random_sequences(), ForwardBudget(1))
    watch = ProfileHooks(subject.info, few.length)
    once = watch.read(subject, few.passes(subject.info)).profile()
    with pytest.raises(ValueError, match="ProfileHooks adds up one series of passes; got a second; make a new Prof"):
        watch.read(subject, few.passes(subject.info))
    # the refused series has left nothing behind
    assert (watch.profile().mass == once.mass).all()
    assert (attention_profile(subject, few).mass == once.mass).all()


def test_an_activation_of_all_layers_is_that_of_each_pass(subject):
    few = subsample(subject.info, random_sequences(), ForwardBudget(1))
    found = by_layer(subject, few.passes(subject.info), "pattern", lambda x: x.mean((1, 3)))
    assert found.shape == (few.count, subject.info.layers, few.length)
    torch.testing.assert_close(found, torch.full_like(found, 1 / few.length))


def test_streams_are_those_before_each_layer_and_after_the_last(subject):
    ids = torch.arange(14).view(2, 7)
    streams = residual_streams(subject, Inputs(ids))
    assert len(streams) == subject.info.layers + 1
    torch.testing.assert_close(streams[-1], subject.forward(Inputs(ids)).residual.double())
