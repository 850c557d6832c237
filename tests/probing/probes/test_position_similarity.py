import numpy as np
import pytest
import torch

from ordinate.ops.sinusoids import sinusoids
from ordinate.probing._adapter import NotApplicable
from ordinate.probing.measures.formatting import heatmap_of
from ordinate.probing.measures.position_distances import (
    attention_divergence,
    closest_pair,
    distances_by_offset,
    nearest_offsets,
    null_closest_pair,
    pairwise_distances,
)
from ordinate.probing.probes import position_similarity
from ordinate.probing.probes.position_similarity import PositionSimilarity
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def waves(length, width):
    pos = torch.arange(length)[None, :, None]
    return sinusoids(pos, width, theta=1e4, form="vaswani", odd="paper")[0]


@pytest.mark.parametrize(("width", "smallest", "apart"), [(4, 0.24, 19), (8, 0.65, 63), (16, 1.02, 1), (64, 1.47, 1)])
def test_the_closest_sinusoids_are_those_of_the_formula(width, smallest, apart):
    found = pairwise_distances(waves(512, width))
    assert closest_pair(found)[1] == apart
    assert abs(found[np.triu_indices(512, 1)].min() - smallest) < 0.006
    # only the offset matters: 2 sum of 1 - cos
    middle, low, high = distances_by_offset(found)
    np.testing.assert_allclose(low, high, atol=1e-6)
    rates = 1e4 ** (-torch.arange(0, width, 2) / width).double()
    np.testing.assert_allclose(middle[6], (2 * (1 - (7 * rates).cos())).sum().sqrt(), rtol=1e-9)


def test_without_positions_all_attention_patterns_are_equal():
    scores = torch.randn(2, 1, 6, dtype=torch.float64).expand(2, 6, 6)
    assert np.abs(attention_divergence(scores)).max() < 1e-12
    apart = torch.full((1, 3, 3), -60.0, dtype=torch.float64)
    apart[0].fill_diagonal_(60.0)
    np.testing.assert_allclose(attention_divergence(apart), 1 - np.eye(3), atol=1e-9)


def test_mostly_equal_embeddings_are_measured():
    table = torch.zeros(12, 4)
    table[3] = 1.0
    assert closest_pair(pairwise_distances(table))[0] == 0.0
    subject = AnalyticModel("learned")
    subject.table[:] = subject.table[0]
    found = PositionSimilarity().measure(subject, random_sequences())
    assert any("the same at all positions" in caveat for caveat in found.caveats)


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_two_equal_embeddings_are_detected():
    subject = AnalyticModel("learned")
    subject.table[17] = subject.table[4] + 1e-6
    finding = PositionSimilarity().measure(subject, random_sequences())
    found = named(finding)
    assert found["smallest / median distance of position embeddings"].value < 1e-6
    assert found["offset of the closest pair"].value == 13
    assert "closer than in a random table" in finding.answer
    assert "practically equal" in finding.answer
    assert finding.headline.startswith("Yes. Smallest / median distance of position embeddings: ")


def test_a_random_table_is_seldom_called_closer_than_chance():
    found = [
        closest_pair(pairwise_distances(torch.randn(24, 16, generator=torch.Generator().manual_seed(x))))[0]
        for x in range(80)
    ]
    _, low, _ = null_closest_pair((24, 16), 1000)
    assert np.mean(np.array(found) < low) <= 0.08
    assert (nearest_offsets(pairwise_distances(torch.arange(9.0)[:, None])) == 1).all()


def test_attention_divergence_correlates_with_embedding_distance():
    # sinusoids: near positions have similar embeddings and similar attention patterns
    subject = AnalyticModel("learned", heads=4, width=32)
    subject.table[:] = 3 * waves(512, 32)
    found = named(PositionSimilarity().measure(subject, random_sequences(length=48)))
    (name,) = [name for name in found if name.startswith("correlation of JS divergence with embedding distance")]
    assert found[name].value > found[name].null_high
    assert name.endswith("p 0.001")


def test_swaps_have_no_effect_without_positions():
    finding = PositionSimilarity().measure(AnalyticModel("none"), random_sequences())
    found = named(finding)
    assert finding.grade == "cannot be told"
    assert found["increase, adjacent positions swapped"].value == 0
    assert found["JS divergence of attention patterns, adjacent positions"].value == 0


def test_rope_is_measured_by_attention_patterns():
    finding = PositionSimilarity().measure(AnalyticModel("rope", head=False), random_sequences())
    found = named(finding)
    assert "No position embeddings are added to tokens: position enters by rope" in finding.answer
    assert found["JS divergence of attention patterns, adjacent positions"].value > 1e-3
    assert found["increase, adjacent positions swapped"].low > 0
    assert finding.grade == "no"
    assert any("distances between position embeddings" in caveat for caveat in finding.caveats)


def test_the_control_is_an_equal_displacement():
    # of a random table, the way to another position is a random direction: exchanging is no worse
    found = named(PositionSimilarity().measure(AnalyticModel("learned", head=False), random_sequences(24, 32)))
    beyond, rise = (found[f"increase, adjacent positions swapped{end}"].value for end in (", minus control", ""))
    assert rise > 0.1
    assert abs(beyond) < 0.25 * rise


def test_a_distant_pair_that_is_closer_than_by_chance_is_a_collision():
    subject = AnalyticModel("learned", width=32, head=False)
    # sinusoids of width 4 come back after 19 positions
    subject.table[:] = torch.cat([waves(512, 4), torch.zeros(512, 28)], 1)
    finding = PositionSimilarity().measure(subject, random_sequences(12, 48))
    assert finding.grade == "yes"
    assert "is at offset 19" in finding.answer


@pytest.mark.extended
def test_a_random_table_is_no_reason_to_call_swaps_better_or_worse_than_chance():
    held = []
    for seed in range(12):
        subject = AnalyticModel("learned", head=False, seed=seed)
        found = named(PositionSimilarity().measure(subject, random_sequences(12, 24, seed=seed), seed))
        own = found["increase, adjacent positions swapped, minus control"]
        held.append(own.low <= 0 <= own.high)
    # one direction of displacement for all texts: an interval over texts alone held 0 in half of the draws
    assert np.mean(held) >= 0.75


def test_images_are_rejected():
    material = type(random_sequences())(None, torch.zeros(3, 1, 4, 4), "nothing")
    with pytest.raises(NotApplicable, match="needs texts"):
        PositionSimilarity().measure(AnalyticModel(), material)


def test_large_matrices_are_reduced_to_block_means():
    shown = np.array(heatmap_of("", np.arange(128.0 * 128).reshape(128, 128)).values)
    assert shown.shape == (64, 64)
    assert shown[0, 0] == np.mean([0, 1, 128, 129])
    assert np.array(heatmap_of("", np.eye(5)).values).tolist() == np.eye(5).tolist()
    assert heatmap_of("", np.zeros((128, 5))).whole == (128, 5)


def test_texts_longer_than_the_measured_positions(monkeypatch):
    monkeypatch.setattr(position_similarity, "MAX_POSITIONS", 12)
    assert random_sequences().ids.shape[1] > 12
    found = named(PositionSimilarity().measure(AnalyticModel("learned"), random_sequences()))
    assert found["increase, adjacent positions swapped"].value > 0
    # of twelve positions no two disjoint pairs have offset eight
    assert "increase, positions swapped at an offset of 4" in found
    assert "increase, positions 8 apart swapped" not in found
