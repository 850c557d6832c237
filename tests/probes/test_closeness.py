import numpy as np
import pytest
import torch

from ordinate.measures.nearness import by_offset, chance_of_closest, closest, confusability, distances, neighbours
from ordinate.measures.telling import panel_of
from ordinate.ops.waves import sinusoids
from ordinate.probes import closeness
from ordinate.probes.closeness import Closeness
from ordinate.subject import Unfit
from ordinate.testing.plain import Plain, texts


def waves(length, width):
    pos = torch.arange(length)[None, :, None]
    return sinusoids(pos, width, theta=1e4, form="vaswani", odd="paper")[0]


@pytest.mark.parametrize(("width", "smallest", "apart"), [(4, 0.24, 19), (8, 0.65, 63), (16, 1.02, 1), (64, 1.47, 1)])
def test_the_closest_sinusoids_are_those_of_the_formula(width, smallest, apart):
    found = distances(waves(512, width))
    assert closest(found)[1] == apart
    assert abs(found[np.triu_indices(512, 1)].min() - smallest) < 0.006
    # only the offset matters: 2 sum of 1 - cos
    middle, low, high = by_offset(found)
    np.testing.assert_allclose(low, high, atol=1e-6)
    rates = 1e4 ** (-torch.arange(0, width, 2) / width).double()
    np.testing.assert_allclose(middle[6], (2 * (1 - (7 * rates).cos())).sum().sqrt(), rtol=1e-9)


def test_without_positions_all_places_look_about_alike():
    scores = torch.randn(2, 1, 6, dtype=torch.float64).expand(2, 6, 6)
    assert np.abs(confusability(scores)).max() < 1e-12
    apart = torch.full((1, 3, 3), -60.0, dtype=torch.float64)
    apart[0].fill_diagonal_(60.0)
    np.testing.assert_allclose(confusability(apart), 1 - np.eye(3), atol=1e-9)


def test_most_positions_alike_are_no_failure():
    table = torch.zeros(12, 4)
    table[3] = 1.0
    assert closest(distances(table))[0] == 0.0
    subject = Plain("learned")
    subject.table[:] = subject.table[0]
    found = Closeness().measure(subject, texts())
    assert any("the same at all positions" in caveat for caveat in found.caveats)


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_two_positions_made_alike_are_found():
    subject = Plain("learned")
    subject.table[17] = subject.table[4] + 1e-6
    finding = Closeness().measure(subject, texts())
    found = named(finding)
    assert found["closest two positions, beside the median distance"].value < 1e-6
    assert found["places between the closest two"].value == 13
    assert "closer than chance" in finding.answer


def test_a_random_table_is_seldom_called_close():
    found = [
        closest(distances(torch.randn(24, 16, generator=torch.Generator().manual_seed(x))))[0] for x in range(80)
    ]
    _, low, _ = chance_of_closest((24, 16), 1000)
    assert np.mean(np.array(found) < low) <= 0.15
    assert (neighbours(distances(torch.arange(9.0)[:, None])) == 1).all()


def test_attention_sees_distances_of_the_code_in_the_distances_it_makes():
    # waves: near positions look alike and look about alike
    subject = Plain("learned", heads=4, width=32)
    subject.table[:] = 3 * waves(512, 32)
    found = named(Closeness().measure(subject, texts(length=48)))
    (name,) = [name for name in found if name.startswith("correlation of looking about with distance of the code")]
    assert found[name].value > found[name].null_high
    assert name.endswith("p 0.001")


def test_exchanged_positions_cost_nothing_where_there_are_none():
    found = named(Closeness().measure(Plain("none"), texts()))
    assert found["rise, neighbours exchanged"].value == 0
    assert found["how differently neighbours look about"].value == 0


def test_rope_adds_nothing_but_is_measured_as_attention_sees_it():
    finding = Closeness().measure(Plain("rope", head=False), texts())
    found = named(finding)
    assert "Nothing is added to tokens: position enters by rope" in finding.answer
    assert found["how differently neighbours look about"].value > 1e-3
    assert found["rise, neighbours exchanged"].low > 0
    assert any("distances of the code" in caveat for caveat in finding.caveats)


def test_a_displacement_as_long_is_the_control():
    # of a random table, the way to another position is a random direction: exchanging is no worse
    found = named(Closeness().measure(Plain("learned", head=False), texts(24, 32)))
    beyond, rise = (found[f"rise, neighbours exchanged{end}"].value for end in (", beyond the control", ""))
    assert rise > 0.1
    assert abs(beyond) < 0.25 * rise


def test_pictures_are_not_asked():
    material = type(texts())(None, torch.zeros(3, 1, 4, 4), "nothing")
    with pytest.raises(Unfit, match="asked of texts"):
        Closeness().measure(Plain(), material)


def test_large_matrices_are_shown_by_the_means_of_blocks():
    shown = np.array(panel_of("", np.arange(128.0 * 128).reshape(128, 128)).values)
    assert shown.shape == (64, 64)
    assert shown[0, 0] == np.mean([0, 1, 128, 129])
    assert np.array(panel_of("", np.eye(5)).values).tolist() == np.eye(5).tolist()
    assert panel_of("", np.zeros((128, 5))).whole == (128, 5)


def test_texts_longer_than_the_positions_looked_at_are_asked_too(monkeypatch):
    monkeypatch.setattr(closeness, "MOST", 12)
    assert texts().ids.shape[1] > 12
    found = named(Closeness().measure(Plain("learned"), texts()))
    assert found["rise, neighbours exchanged"].value > 0
    # of twelve positions none are eight apart and in two pairs
    assert "rise, positions 4 apart exchanged" in found
    assert "rise, positions 8 apart exchanged" not in found
