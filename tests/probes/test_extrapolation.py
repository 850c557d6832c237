import numpy as np
import pytest
import torch

from ordinate.measures.presenting import sample
from ordinate.probe import Material
from ordinate.probes.extrapolation import Extrapolation, places, rounding_table, wave_error
from ordinate.subject import Reading, Unfit
from ordinate.testing.plain import Plain, texts


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_rope_reads_the_same_wherever_a_text_stands():
    found = named(Extrapolation(shifts=(1, 64)).measure(Plain("rope"), texts()))
    assert abs(found["rise, shifted by 64"].value) < 1e-9
    assert "only distances count" in Extrapolation(shifts=(64,)).measure(Plain("rope"), texts()).answer


def test_learned_positions_that_are_shifted_are_others():
    found = named(Extrapolation(shifts=(64,)).measure(Plain("learned", head=False), texts()))
    assert found["rise, shifted by 64"].low > 0.1


class Lost(Plain):
    """Knows that the same token follows always, up to a place; beyond, it says nothing."""

    end = 24

    def read(self, inputs, watch=None):
        found = super().read(inputs, watch)
        logits = torch.zeros(*inputs.ids.shape, 50, dtype=torch.float64)
        logits[:, : self.end, 3] = 5.0
        return Reading(found.stream, logits)


def test_a_model_that_is_lost_beyond_its_length_is_found_out():
    material = Material(torch.full((16, 24), 3), None, "threes")
    finding = Extrapolation(times=(2,), shifts=(1,)).measure(Lost(), material)
    rise = named(finding)["rise, read 2 times as far in"]
    # from ln(1 + 49 e^-5) to ln 50
    assert abs(rise.value - (np.log(50) - np.log(1 + 49 * np.exp(-5)))) < 1e-6
    assert rise.low > 0
    assert "loses its way" in finding.answer


def test_a_model_that_reads_anywhere_is_not():
    # a table of pairs: what stands before the last token does not matter, and no more do the joints
    material, said = texts(64, 24), []

    class Pairs(Plain):
        def read(self, inputs, watch=None):
            found = super().read(inputs, watch)
            return Reading(found.stream, self.tokens[inputs.ids] @ torch.ones(16, 50, dtype=torch.float64))

    found = named(Extrapolation(times=(2, 4), shifts=(1,)).measure(Pairs(), material))
    said += [abs(found[f"rise, read {times} times as far in"].value) for times in (2, 4)]
    assert max(said) < 1e-6


def test_loss_by_place_is_that_of_each_token():
    subject, material = Plain("rope"), texts(6, 12)
    found = places(subject, sample(subject.facts, material, 1))
    logits = subject.read(sample(subject.facts, material, 1).given(slice(0, 6))).logits
    want = torch.nn.functional.cross_entropy(logits[2, 4].float(), material.ids[2, 5])
    np.testing.assert_allclose(found[2, 3], float(want), rtol=1e-6)
    assert found.shape == (6, 10)


def test_what_the_model_cannot_take_is_left_out_and_said():
    finding = Extrapolation(shifts=(1, 4, 64)).measure(Plain("learned", max_length=30), texts())
    assert list(named(finding)) == ["rise, shifted by 1", "rise, shifted by 4"]
    assert any("it takes 30 tokens" in caveat for caveat in finding.caveats)
    with pytest.raises(Unfit, match="asked of texts"):
        Extrapolation().measure(Plain(), Material(None, torch.zeros(3, 1, 4, 4), "nothing"))
    with pytest.raises(Unfit, match="no positions beyond 24"):
        Extrapolation().measure(Plain("learned", head=False, max_length=24), texts())


def test_positions_in_few_digits_run_together():
    rows = {(row[0], row[1]): row[2:] for row in rounding_table().rows}
    assert rows["bfloat16", 256][0] == "no"
    assert rows["float16", 1024][0] == "yes"
    assert rows["float16", 4096][0] == "no"
    assert rows["float32", 131072][0] == "yes"
    assert wave_error(1, torch.float32) < 1e-7
    assert wave_error(131072, torch.float16) == 2.0
    assert wave_error(4096, torch.bfloat16) > 0.5
