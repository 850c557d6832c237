import pytest
import torch

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.replications.papers.sun import RATIO, Replaced, Sun, found_in, losses, mean_cosine, states
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.runner import replicate

PLACE, CHANNEL = 0, 3


def with_massive_entry():
    """A decoder whose first layer writes one entry at the first token, by a learned table of positions."""
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=64, width=16, layers=3, heads=2, scheme="learned", max_length=16)).eval()
    tables = [weight for name, weight in model.named_parameters() if "scheme" in name and weight.shape == (16, 16)]
    with torch.no_grad():
        tables[0][PLACE, CHANNEL] = 200.0
    return attach(model)


def test_the_planted_entry_is_found_and_no_other():
    found = found_in(with_massive_entry(), random_texts(0, 4, 16) % 64)
    assert found.place.tolist() == [PLACE] * 4
    assert found.channel.tolist() == [CHANNEL] * 4
    assert (found.ratio > RATIO).all()
    assert found.value.tolist() == pytest.approx([200] * 4, rel=0.01)


def test_an_entry_set_to_zero_changes_the_loss_and_set_to_itself_does_not():
    model, ids = with_massive_entry(), random_texts(0, 4, 16) % 64
    found, plain = found_in(model, ids), losses(model, ids)
    assert torch.allclose(losses(model, ids, Replaced(found, None)), plain)
    assert torch.allclose(losses(model, ids, Replaced(found, 200.0)), plain, atol=1e-4)
    assert not torch.allclose(losses(model, ids, Replaced(found, 0.0)), plain, atol=1e-4)


def test_claims_about_a_model_tell_a_planted_entry_from_random_weights():
    texts = ProbeData(random_texts(0, 12, 16) % 64, None, "random", natural=False)
    planted = Sun().measure(Subject(with_massive_entry(), texts))
    random = Sun().measure(Subject(random_decoder(0), texts))
    assert planted["massive"].low > RATIO > 20 > random["massive"].high
    assert planted["first token"].value == 1
    assert abs(planted["a constant does"].value) < 1e-3 < abs(planted["zero destroys"].value)


def test_a_shared_massive_entry_makes_states_alike():
    assert mean_cosine(states(0, RATIO)) > 0.99
    assert abs(mean_cosine(states(0, None))) < 0.02
    assert replicate("sun").headline == "agrees: 1"
