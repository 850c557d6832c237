import pytest
import torch

from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.input_obfuscation import (
    fix_ones_vector,
    frequency_analysis,
    permuted_channel_errors,
    random_rotation,
    transformed_query_errors,
)
from ordinate.probing.measures.reconstruction_attack import AttackData, candidate_search_attack, nearest_mean_attack
from ordinate.probing.measures.samples import ForwardBudget, Sample, subsample
from ordinate.probing.probes.privacy import Privacy, _attacks
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_a_layer_norm_is_invariant_under_permutations_not_rotations():
    found = transformed_query_errors(AnalyticModel("learned"), Inputs(random_sequences(3, 12).ids), 1, 0)
    assert found.norm == "layer"
    assert found.permuted < 1e-14
    assert found.rotated > 0.1
    assert found.level < 1e-13


def test_random_rotations_are_orthogonal():
    turned = random_rotation(12, torch.Generator().manual_seed(0))
    for one in (turned, fix_ones_vector(turned)):
        torch.testing.assert_close(one @ one.T, torch.eye(12, dtype=torch.float64))
    ones = torch.ones(12, dtype=torch.float64)
    torch.testing.assert_close(fix_ones_vector(turned) @ ones, ones)
    assert (fix_ones_vector(turned) - torch.eye(12)).abs().max() > 0.1


def test_channels_can_be_permuted_unless_rotated():
    chosen = subsample(AnalyticModel().info, random_sequences(4, 12), ForwardBudget(1))
    rope = permuted_channel_errors(AnalyticModel("rope"), chosen, 8, 0)
    assert rope["before the dot product"] < 1e-13
    assert rope["before rotation"] > 1e-3
    assert list(permuted_channel_errors(AnalyticModel("learned"), chosen, 8, 0)) == ["before the dot product"]


def test_tokens_are_recovered_from_the_input_without_positions():
    subject, material = AnalyticModel("none", layers=1), random_sequences(40, 24)
    whole = subsample(subject.info, material, ForwardBudget(1))
    secret, public = whole.truncated(20), Sample(material.ids[20:], None, 0, None)
    places, tokens = nearest_mean_attack(AttackData.of(subject, secret, public), sort_columns=False)
    assert (tokens[:, 0] == 1).all()
    # rows carry no position information
    assert places[:, 0].mean() < 0.15
    assert (nearest_mean_attack(AttackData.of(subject, secret, public), sort_columns=True)[1][:, 0] == 1).all()


def test_positions_are_recovered_from_position_embeddings():
    subject, material = AnalyticModel("learned", scale=4.0), random_sequences(40, 24)
    whole = subsample(subject.info, material, ForwardBudget(1))
    places, _ = nearest_mean_attack(
        AttackData.of(subject, whole.truncated(20), Sample(material.ids[20:], None, 0, None)), sort_columns=False
    )
    assert places[:, 0].mean() > 0.95


def test_random_vectors_are_recovered_at_chance():
    class Noise(AnalyticModel):
        def forward(self, inputs, watch=None):
            draw = torch.Generator().manual_seed(int(inputs.ids.sum()))
            vectors = torch.randn(*inputs.ids.shape, 16, dtype=torch.float64, generator=draw)
            return super().forward(Inputs(embeddings=vectors), watch)

    subject, material = Noise(causal=False), random_sequences(80, 24)
    whole = subsample(subject.info, material, ForwardBudget(1))
    places, tokens = nearest_mean_attack(
        AttackData.of(subject, whole.truncated(40), Sample(material.ids[40:], None, 0, None)), sort_columns=False
    )
    assert abs(places.mean() - 1 / 24) < 0.02
    assert abs(tokens.mean() - 1 / 50) < 0.02


def test_candidate_search_recovers_tokens_of_a_decoder():
    share, own, other = candidate_search_attack(AnalyticModel("rope"), random_sequences().ids[0], 1, 20, 0)
    assert share == 1.0
    assert own < 1e-12 < 0.01 < other


def test_frequency_analysis_recovers_renamed_tokens():
    # each token is twice as frequent as the next: frequencies identify all of them
    ids = torch.cat([torch.full((2 ** (6 - token),), token) for token in range(6)])[None]
    assert frequency_analysis(ids, ids, 6, 0) == 1.0
    assert frequency_analysis(ids, torch.randint(6, (1, 60)), 6, 0) < 1.0


def test_the_finding_reports_equal_output_and_no_privacy():
    finding = Privacy(candidates=9).measure(AnalyticModel("rope"), random_sequences(24, 16))
    found = named(finding)
    assert found["change, tokens, positions and mask permuted and undone"].value < 1e-13
    assert found["change, tokens and positions permuted and undone"].value > 0.01
    assert "nothing is lost: tokens, positions and mask" in finding.answer
    assert finding.headline.startswith("No. Tokens recovered")
    assert "100 % of tokens by candidate search" in finding.answer
    assert (
        Privacy(candidates=9).measure(AnalyticModel("rope"), random_sequences(24, 16)).estimates == finding.estimates
    )


def test_an_encoder_has_no_candidate_search():
    finding = Privacy().measure(AnalyticModel("learned", causal=False), random_sequences(24, 16))
    assert any("depends on later tokens" in caveat for caveat in finding.caveats)
    assert "candidate search" not in finding.answer


def test_a_model_that_shows_nothing_is_not_called_insecure():
    # all tokens have one vector, and there is no position: nothing can be read
    subject = AnalyticModel("none", causal=False)
    subject.tokens[:] = subject.tokens[0]
    finding = Privacy().measure(subject, random_sequences(24, 16))
    assert finding.grade == "cannot be told"
    assert "That is not surely more than guessing" in finding.headline
    assert "not private" not in finding.headline
    # one vector for all: the correct candidate is as near as every other, which is no recovery
    subject = AnalyticModel("none", layers=1)
    subject.tokens[:] = subject.tokens[0]
    assert candidate_search_attack(subject, random_sequences().ids[0], 0, 20, 0)[0] == 0.0


def test_guessing_the_most_frequent_token_is_no_attack():
    # nine of ten tokens are the same, and all vectors too: an attacker who always says it is right nine times in ten
    ids = (torch.rand(40, 24, generator=torch.Generator().manual_seed(0)) < 0.1).long()
    subject = AnalyticModel("none", causal=False)
    subject.tokens[:] = subject.tokens[0]
    finding = Privacy().measure(subject, ProbeData(ids, None, "zeros and ones"))
    assert finding.grade == "cannot be told"
    read = AttackData([], ids[:20], [], ids[20:], 0)
    assert abs(float(read.guessed().mean()) - 0.9) < 0.03


def test_the_layer_is_chosen_without_the_secret_texts():
    draw = torch.Generator().manual_seed(0)
    layers = [torch.randn(24, 12, 8, generator=draw) for _ in range(40)]
    known, ids = (torch.randint(50, (24, 12), generator=draw) for _ in range(2))
    secret = [torch.randn(24, 12, 8, generator=draw) for _ in range(40)]
    tokens, positions = _attacks(AttackData(secret, ids, layers, known, 0))[:2]
    for one in (tokens, positions):
        # the best of 40 layers by chance is better than that: choosing it on the secret texts would overstate it
        assert one.shares.mean(0)[one.layer] < one.shares.mean(0).max()
        assert abs(one.shares[:, one.layer].mean() - 1 / (50 if one is tokens else 12)) < 0.05
    other = _attacks(AttackData([x + 1 for x in secret], ids.flip(0), layers, known, 0))
    assert [one.layer for one in other[:2]] == [tokens.layer, positions.layer]


def test_unsupported_inputs_are_rejected():
    with pytest.raises(NotApplicable, match="got only images"):
        Privacy().measure(AnalyticModel(), ProbeData(None, torch.zeros(4, 1, 4, 4), "nothing"))
    with pytest.raises(NotApplicable, match="needs four texts"):
        Privacy().measure(AnalyticModel(), random_sequences(2))
