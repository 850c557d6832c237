import pytest
import torch

from ordinate.measures.attack import Read, recognised, recovered
from ordinate.measures.disguise import about_ones, channels, features, renamed, rotation
from ordinate.measures.presenting import Passes, Sample, sample
from ordinate.probe import Material
from ordinate.probes.secrecy import Secrecy
from ordinate.subject import Inputs, Unfit
from ordinate.testing.plain import Plain, texts


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_a_layer_norm_survives_a_permutation_of_columns_and_no_rotation():
    found = features(Plain("learned"), Inputs(texts(3, 12).ids), 1, 0)
    assert found.norm == "layer"
    assert found.permuted < 1e-14
    assert found.rotated > 0.1
    assert found.level < 1e-13


def test_rotations_are_rotations():
    turned = rotation(12, torch.Generator().manual_seed(0))
    for one in (turned, about_ones(turned)):
        torch.testing.assert_close(one @ one.T, torch.eye(12, dtype=torch.float64))
    ones = torch.ones(12, dtype=torch.float64)
    torch.testing.assert_close(about_ones(turned) @ ones, ones)
    assert (about_ones(turned) - torch.eye(12)).abs().max() > 0.1


def test_channels_may_change_places_unless_they_are_rotated():
    chosen = sample(Plain().facts, texts(4, 12), Passes(1))
    rope = channels(Plain("rope"), chosen, 8, 0)
    assert rope["as they enter the products"] < 1e-13
    assert rope["before they are rotated"] > 1e-3
    assert list(channels(Plain("learned"), chosen, 8, 0)) == ["as they enter the products"]


def test_tokens_that_are_added_to_nothing_are_read_back_from_what_enters():
    subject, material = Plain("none", layers=1), texts(40, 24)
    whole = sample(subject.facts, material, Passes(1))
    secret, public = whole.first(20), Sample(material.ids[20:], None, 0, None)
    places, tokens = recovered(Read.of(subject, secret, public), sort=False)
    assert (tokens[:, 0] == 1).all()
    # nothing tells where a row stood
    assert places[:, 0].mean() < 0.15
    assert (recovered(Read.of(subject, secret, public), sort=True)[1][:, 0] == 1).all()


def test_places_that_are_added_are_read_back():
    subject, material = Plain("learned", scale=4.0), texts(40, 24)
    whole = sample(subject.facts, material, Passes(1))
    places, _ = recovered(Read.of(subject, whole.first(20), Sample(material.ids[20:], None, 0, None)), sort=False)
    assert places[:, 0].mean() > 0.95


def test_random_vectors_give_away_no_more_than_chance():
    class Noise(Plain):
        def read(self, inputs, watch=None):
            draw = torch.Generator().manual_seed(int(inputs.ids.sum()))
            vectors = torch.randn(*inputs.ids.shape, 16, dtype=torch.float64, generator=draw)
            return super().read(Inputs(vectors=vectors), watch)

    subject, material = Noise(causal=False), texts(80, 24)
    whole = sample(subject.facts, material, Passes(1))
    places, tokens = recovered(
        Read.of(subject, whole.first(40), Sample(material.ids[40:], None, 0, None)), sort=False
    )
    assert abs(places.mean() - 1 / 24) < 0.02
    assert abs(tokens.mean() - 1 / 50) < 0.02


def test_a_decoders_tokens_betray_themselves_when_they_are_tried():
    share, own, other = recognised(Plain("rope"), texts().ids[0], 1, 20, 0)
    assert share == 1.0
    assert own < 1e-12 < 0.01 < other


def test_renamed_tokens_are_read_back_by_how_often_they_come():
    # each token twice as often as the next: nobody is deceived
    ids = torch.cat([torch.full((2 ** (6 - token),), token) for token in range(6)])[None]
    assert renamed(ids, ids, 6, 0) == 1.0
    assert renamed(ids, torch.randint(6, (1, 60)), 6, 0) < 1.0


def test_the_finding_says_that_it_is_the_same_and_not_private():
    finding = Secrecy(candidates=9).measure(Plain("rope"), texts(24, 16))
    found = named(finding)
    assert found["change, tokens, positions and mask permuted and undone"].value < 1e-13
    assert found["change, tokens and positions permuted and undone"].value > 0.01
    assert "The same: tokens, positions and mask" in finding.answer
    assert "not private" in finding.answer
    assert "recognises 100 % of tokens by trying" in finding.answer
    assert Secrecy(candidates=9).measure(Plain("rope"), texts(24, 16)).estimates == finding.estimates


def test_an_encoder_is_read_back_but_not_tried():
    finding = Secrecy().measure(Plain("learned", causal=False), texts(24, 16))
    assert any("depends on those after it" in caveat for caveat in finding.caveats)
    assert "by trying" not in finding.answer


def test_what_cannot_be_asked():
    with pytest.raises(Unfit, match="there are only images"):
        Secrecy().measure(Plain(), Material(None, torch.zeros(4, 1, 4, 4), "nothing"))
    with pytest.raises(Unfit, match="must know other texts"):
        Secrecy().measure(Plain(), texts(2))
