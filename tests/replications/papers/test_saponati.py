import pytest

from ordinate.core.finding import Estimate
from ordinate.ops.symmetry import summed_symmetry
from ordinate.probing._probe import ProbeData
from ordinate.replications.papers.saponati import HEADS, KEY_HEADS, plant, published_symmetry
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.runner import load


def by_their_steps(query, key):
    """Symmetry of the sum over heads, by the steps of the published repository on matrices of width by width."""
    groups, width, d = key.shape
    wide = key.transpose(0, 1).reshape(width, groups * d)
    repeated = wide.view(width, d, groups).repeat_interleave(len(query) // groups, dim=0)
    tiled = repeated.view(width, len(query) * d)
    m = query.transpose(0, 1).flatten(1) @ tiled.T
    return float((m * m.T).sum() / m.square().sum())


@pytest.mark.parametrize("sign", [1.0, 0.0, -1.0])
def test_the_published_pairing_is_that_of_the_repository(sign):
    """Kills the mutant that pairs by h // g: it would give 1 and -1."""
    layer = plant(sign, KEY_HEADS, 3)
    assert published_symmetry(*layer) == pytest.approx(by_their_steps(*layer), abs=1e-9)


def test_a_symmetric_layer_has_half_the_score_in_the_published_pairing():
    layer = plant(1.0, KEY_HEADS, 0)
    assert summed_symmetry(*layer) > 0.99
    # 16 of the 32 pairs of key heads that meet, meet in both orders
    assert published_symmetry(*layer) == pytest.approx(0.5, abs=0.03)
    met = [h for h in range(HEADS) if h % KEY_HEADS == h // (HEADS // KEY_HEADS)]
    assert met == [0, 10, 21, 31]


@pytest.mark.extended
def test_a_random_decoder_is_not_symmetric():
    model = random_decoder(0)
    texts = ProbeData(random_texts(0, 4, 16), None, "random", natural=False)
    found = load("saponati").measure(Subject(model, texts))
    assert set(found) == {"grouped queries", "decoder"}
    assert isinstance(found["decoder"], Estimate)
    assert abs(found["decoder"].value) < 0.1
