from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate.measures.precision import PLACES, rounding_table, table_errors, turning_errors, wave_error
from ordinate.measures.presenting import Passes, sample
from ordinate.probe import Material
from ordinate.probes.extrapolation import Extrapolation, places
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
    found = places(subject, sample(subject.facts, material, Passes(1)))
    logits = subject.read(sample(subject.facts, material, Passes(1)).given(slice(0, 6))).logits
    want = torch.nn.functional.cross_entropy(logits[2, 4].float(), material.ids[2, 5])
    np.testing.assert_allclose(found[2, 3], float(want), rtol=1e-6)
    assert found.shape == (6, 10)


def test_what_the_model_cannot_take_is_left_out_and_said():
    finding = Extrapolation(shifts=(1, 4, 64)).measure(Plain("learned", max_length=30), texts())
    assert [name for name in named(finding) if "rise" in name] == ["rise, shifted by 1", "rise, shifted by 4"]
    assert any("it takes no more than 30 tokens" in caveat for caveat in finding.caveats)
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
    # with angles in float32 only the waves are rounded, to half of 2^-7 at most
    assert wave_error(4096, torch.bfloat16, angles=torch.float32) < 2**-8
    assert 1e-4 < wave_error(131072, torch.float32) < 0.02


class Coarse(Plain):
    """Rotates by angles in few digits."""

    def read(self, inputs, watch=None):
        if inputs.positions is not None:
            inputs = replace(inputs, positions=inputs.positions.to(torch.bfloat16).long())
        return super().read(inputs, watch)


def test_by_how_much_a_model_turns_otherwise_far_on_is_found():
    text = texts(1, 32).ids[0]
    exact, coarse = (turning_errors(kind("rope", layers=1), text, 8) for kind in (Plain, Coarse))
    assert list(exact) == list(coarse) == list(PLACES)
    assert max(exact.values()) < 1e-9
    # in bfloat16 neighbours share one number beyond 256
    assert min(coarse.values()) > 0.5
    assert list(turning_errors(Plain("rope", layers=1, max_length=1100), text, 8)) == [256, 1024]
    assert turning_errors(Plain("learned"), text, 8) == {}
    # a short text shows it at offsets that are shorter
    assert max(turning_errors(Plain("rope"), text[:8], 8).values()) < 1e-9
    finding = Extrapolation(shifts=(1,)).measure(Plain("rope"), texts())
    assert named(finding)["error of what turns queries and keys at position 131,072, in float64"].value < 1e-9
    assert finding.charts[-1].title == "How exactly a position is held"


def test_rows_of_a_table_are_moved_by_rounding():
    subject = Plain("learned")
    found = table_errors(subject)
    assert 0 < found["float16"] < found["bfloat16"] < 0.02
    # rows that differ in the last digits alone cannot be told apart
    subject.table[1] = subject.table[0] + 1e-4
    assert table_errors(subject)["bfloat16"] > 0.5
    assert table_errors(Plain("learned", max_length=30)).keys() == found.keys()
    with pytest.raises(Unfit, match="adds nothing"):
        table_errors(Plain("rope"))
