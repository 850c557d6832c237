from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate.probing._adapter import ForwardOutput, Inputs, NotApplicable
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.longer_context import (
    half_window,
    increase_by_context,
    token_losses_by_position,
    windowed_losses,
)
from ordinate.probing.measures.position_precision import (
    POSITIONS,
    embedding_rounding_errors,
    precision_table,
    rotation_errors,
    sinusoid_error,
)
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.probes.extrapolation import Extrapolation
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

    end = 16

    def forward(self, inputs, watch=None):
        found = super().forward(inputs, watch)
        logits = torch.zeros(*inputs.ids.shape, 50, dtype=torch.float64)
        logits[:, : self.end, 3] = 5.0
        return ForwardOutput(found.residual, logits)


# from ln(1 + 49 e^-5) to ln 50
LOSS_OF_LOST = np.log(50) - np.log(1 + 49 * np.exp(-5))


def threes(length):
    return ProbeData(torch.full((16, length), 3), None, "threes")


def test_failure_beyond_the_trained_length_is_detected():
    finding = Extrapolation(times=(2, 4), shifts=(1,), trained_length=16).measure(Lost(), threes(64))
    for length in (32, 64):
        rise = named(finding)[f"increase with {length} tokens of context in place of 16"]
        assert abs(rise.value - LOSS_OF_LOST) < 1e-6
    assert (finding.grade, finding.effect.name) == ("no", "increase with 32 tokens of context in place of 16")
    assert finding.headline.startswith("No. Increase with 32 tokens")


def test_a_model_that_fails_only_far_beyond_reads_weakly():
    class Later(Lost):
        end = 32

    finding = Extrapolation(times=(2, 4), shifts=(1,), trained_length=16).measure(Later(), threes(64))
    assert (finding.grade, finding.effect.name) == ("weakly", "increase with 64 tokens of context in place of 16")


def test_a_change_of_document_is_no_failure():
    # each text repeats a token of its own, which the model predicts: another document before it would do harm
    class Same(AnalyticModel):
        def forward(self, inputs, watch=None):
            found = super().forward(inputs, watch)
            seen = torch.nn.functional.one_hot(inputs.ids, 50).double().cumsum(1)
            return ForwardOutput(found.residual, 8 * seen / seen.sum(2, keepdim=True))

    ids = torch.arange(16)[:, None].expand(-1, 64).contiguous()
    finding = Extrapolation(shifts=(1,), trained_length=16).measure(Same(), ProbeData(ids, None, "repeated"))
    assert (finding.grade, finding.effect.value) == ("yes", 0.0)
    # pieces that are no longer than the trained length cannot answer
    finding = Extrapolation(shifts=(1,), trained_length=128).measure(Same(), ProbeData(ids, None, "repeated"))
    assert finding.grade == "cannot be told"
    assert "trained at 128 tokens, and the texts have 64: give texts of 2 times" in finding.answer


def test_without_a_trained_length_nothing_is_claimed():
    finding = Extrapolation(shifts=(1,)).measure(AnalyticModel("rope"), random_sequences())
    assert (finding.grade, finding.effect) == ("cannot be told", None)
    assert "give it as trained_length=128" in finding.answer
    with pytest.raises(ValueError, match="the trained length must be above zero; got 0"):
        Extrapolation(trained_length=0)


@pytest.mark.parametrize("first_token", [None, 7])
def test_windowed_losses_are_those_of_the_same_tokens_in_their_windows(first_token):
    subject, ids = AnalyticModel("rope", first_token=first_token), random_sequences(3, 29).ids
    fixed = int(first_token is not None)
    if fixed:
        ids[:, 0] = first_token
    chosen = subsample(subject.info, ProbeData(ids, None, ""), ForwardBudget(1))
    read, windowed = token_losses_by_position(subject, chosen), windowed_losses(subject, chosen, 11)
    half = half_window(chosen, 11)
    assert half == 5
    for token in (fixed + half, 17, fixed + half + windowed.shape[1] - 1):
        start = fixed + ((token - fixed) // half - 1) * half
        window = torch.cat([ids[:, :fixed], ids[:, start : start + 2 * half]], 1)
        logits = subject.forward(Inputs(window)).logits[:, fixed + token - start - 1]
        want = torch.nn.functional.cross_entropy(logits.float(), ids[:, token], reduction="none").numpy()
        np.testing.assert_allclose(windowed[:, token - fixed - half], want, rtol=1e-5)
        rise = increase_by_context(read, windowed, chosen, 11)[:, token - fixed - half]
        np.testing.assert_allclose(rise, read[:, token - 2] - want, atol=1e-5)
    # the first window is the beginning of the text
    np.testing.assert_allclose(increase_by_context(read, windowed, chosen, 11)[:, :half], 0, atol=1e-6)


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
    with pytest.raises(NotApplicable, match="needs texts"):
        Extrapolation().measure(AnalyticModel(), ProbeData(None, torch.zeros(3, 1, 4, 4), "nothing"))
    full = AnalyticModel("learned", max_length=24)
    finding = Extrapolation(trained_length=24).measure(full, random_sequences())
    assert (finding.grade, finding.effect) == ("no", None)
    assert "no positions beyond its trained length of 24 tokens" in finding.headline
    assert any("no positions beyond 24, and texts of 24" in caveat for caveat in finding.caveats)


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
