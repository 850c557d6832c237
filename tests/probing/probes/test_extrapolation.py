from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate.probing._adapter import ForwardOutput, NotApplicable
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.position_precision import (
    POSITIONS,
    embedding_rounding_errors,
    precision_table,
    rotation_errors,
    sinusoid_error,
)
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.probes.extrapolation import Extrapolation, token_losses_by_position
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_rope_is_shift_invariant():
    found = named(Extrapolation(shifts=(1, 64)).measure(AnalyticModel("rope"), random_sequences()))
    assert abs(found["increase, positions shifted by 64"].value) < 1e-9
    assert (
        "only relative positions matter"
        in Extrapolation(shifts=(64,)).measure(AnalyticModel("rope"), random_sequences()).answer
    )


def test_learned_positions_change_under_a_shift():
    found = named(Extrapolation(shifts=(64,)).measure(AnalyticModel("learned", head=False), random_sequences()))
    assert found["increase, positions shifted by 64"].low > 0.1


class Lost(AnalyticModel):
    """Predicts the same token up to a position, and nothing beyond."""

    end = 24

    def forward(self, inputs, watch=None):
        found = super().forward(inputs, watch)
        logits = torch.zeros(*inputs.ids.shape, 50, dtype=torch.float64)
        logits[:, : self.end, 3] = 5.0
        return ForwardOutput(found.residual, logits)


def test_failure_beyond_a_length_is_detected():
    material = ProbeData(torch.full((16, 24), 3), None, "threes")
    finding = Extrapolation(times=(2,), shifts=(1,)).measure(Lost(), material)
    rise = named(finding)["increase, context 2 times as long"]
    # from ln(1 + 49 e^-5) to ln 50
    assert abs(rise.value - (np.log(50) - np.log(1 + 49 * np.exp(-5)))) < 1e-6
    assert rise.low > 0
    assert "It fails" in finding.answer


def test_a_model_without_positions_shows_no_increase():
    # a bigram table: only the last token matters, so neither the earlier context nor segment boundaries do
    material, increases = random_sequences(64, 24), []

    class Pairs(AnalyticModel):
        def forward(self, inputs, watch=None):
            found = super().forward(inputs, watch)
            return ForwardOutput(found.residual, self.tokens[inputs.ids] @ torch.ones(16, 50, dtype=torch.float64))

    found = named(Extrapolation(times=(2, 4), shifts=(1,)).measure(Pairs(), material))
    increases += [abs(found[f"increase, context {times} times as long"].value) for times in (2, 4)]
    assert max(increases) < 1e-6


def test_loss_by_position_is_that_of_each_token():
    subject, material = AnalyticModel("rope"), random_sequences(6, 12)
    found = token_losses_by_position(subject, subsample(subject.info, material, ForwardBudget(1)))
    logits = subject.forward(subsample(subject.info, material, ForwardBudget(1)).inputs(slice(0, 6))).logits
    want = torch.nn.functional.cross_entropy(logits[2, 4].float(), material.ids[2, 5])
    np.testing.assert_allclose(found[2, 3], float(want), rtol=1e-6)
    assert found.shape == (6, 10)


def test_lengths_beyond_the_maximum_are_skipped_with_a_reason():
    finding = Extrapolation(shifts=(1, 4, 64)).measure(AnalyticModel("learned", max_length=30), random_sequences())
    assert [name for name in named(finding) if "increase" in name] == [
        "increase, positions shifted by 1",
        "increase, positions shifted by 4",
    ]
    assert any("of at most 30 tokens" in caveat for caveat in finding.caveats)
    with pytest.raises(NotApplicable, match="needs texts"):
        Extrapolation().measure(AnalyticModel(), ProbeData(None, torch.zeros(3, 1, 4, 4), "nothing"))
    with pytest.raises(NotApplicable, match="no positions beyond 24"):
        Extrapolation().measure(AnalyticModel("learned", head=False, max_length=24), random_sequences())


def test_low_precision_positions_collide():
    rows = {(row[0], row[1]): row[2:] for row in precision_table().rows}
    assert rows["bfloat16", 256][0] == "no"
    assert rows["float16", 1024][0] == "yes"
    assert rows["float16", 4096][0] == "no"
    assert rows["float32", 131072][0] == "yes"
    assert sinusoid_error(1, torch.float32) < 1e-7
    assert sinusoid_error(131072, torch.float16) == 2.0
    assert sinusoid_error(4096, torch.bfloat16) > 0.5
    # with angles in float32 only the sinusoids are rounded, to half of 2^-7 at most
    assert sinusoid_error(4096, torch.bfloat16, angle_dtype=torch.float32) < 2**-8
    assert 1e-4 < sinusoid_error(131072, torch.float32) < 0.02


class Coarse(AnalyticModel):
    """Rotates by angles in low precision."""

    def forward(self, inputs, watch=None):
        if inputs.positions is not None:
            inputs = replace(inputs, positions=inputs.positions.to(torch.bfloat16).long())
        return super().forward(inputs, watch)


def test_rotation_errors_at_large_positions():
    text = random_sequences(1, 32).ids[0]
    exact, coarse = (rotation_errors(kind("rope", layers=1), text, 8) for kind in (AnalyticModel, Coarse))
    assert list(exact) == list(coarse) == list(POSITIONS)
    assert max(exact.values()) < 1e-9
    # in bfloat16 neighbours share one number beyond 256
    assert min(coarse.values()) > 0.5
    assert list(rotation_errors(AnalyticModel("rope", layers=1, max_length=1100), text, 8)) == [256, 1024]
    assert rotation_errors(AnalyticModel("learned"), text, 8) == {}
    # a short text shows it at offsets that are shorter
    assert max(rotation_errors(AnalyticModel("rope"), text[:8], 8).values()) < 1e-9
    finding = Extrapolation(shifts=(1,)).measure(AnalyticModel("rope"), random_sequences())
    assert named(finding)["error of the rotation of queries and keys at position 131,072, in float64"].value < 1e-9
    assert finding.charts[-1].title == "Precision of positions"


def test_rounding_errors_of_position_embeddings():
    subject = AnalyticModel("learned")
    found = embedding_rounding_errors(subject)
    assert 0 < found["float16"] < found["bfloat16"] < 0.02
    # rows that differ in the last digits alone cannot be distinguished
    subject.table[1] = subject.table[0] + 1e-4
    assert embedding_rounding_errors(subject)["bfloat16"] > 0.5
    assert embedding_rounding_errors(AnalyticModel("learned", max_length=30)).keys() == found.keys()
    with pytest.raises(NotApplicable, match="has no position embeddings"):
        embedding_rounding_errors(AnalyticModel("rope"))
