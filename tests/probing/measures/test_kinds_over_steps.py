"""Kinds of heads over training: what appears is found and when; noise and what was there before are not."""

import numpy as np
import pytest

from ordinate.probing.measures import head_kinds, kinds_over_steps
from ordinate.probing.measures.head_kinds import DUPLICATE, FIRST, INDUCTION, OFFSET, HeadKinds

TEXTS, LAYERS, HEADS = 12, 2, 4
STEPS = (100, 200, 400, 800)
NAMES = (OFFSET, FIRST, INDUCTION, DUPLICATE)


def checkpoint(excess):
    """Kinds of heads whose attention above the null is this, for each text, kind, layer and head."""
    null = np.full(excess[:, 0].shape, 0.05)
    scores = head_kinds._scores({name: (excess[:, k] + null, null) for k, name in enumerate(NAMES)}, 0)
    return HeadKinds(scores, np.ones((LAYERS, HEADS), int), 31, TEXTS, 64)


def run(rng, noise, planted=0.0):
    """Checkpoints whose heads differ between texts by noise."""
    return rng.normal(planted, noise, (len(STEPS), TEXTS, len(NAMES), LAYERS, HEADS))


def told(drawn):
    return {one.kind: one for one in kinds_over_steps.kinds_over_steps([checkpoint(own) for own in drawn], STEPS)}


def test_a_head_that_appears_is_found_between_its_checkpoints():
    drawn = run(np.random.default_rng(0), 0.02)
    drawn[2:, :, 2, 1, 3] += 0.7
    drawn[3:, :, 2, 0, 1] += 0.3
    drawn[3:, :, 0, 0, 2] += 0.2
    found = told(drawn)
    assert [found[name].grade for name in NAMES] == ["weakly", "no", "yes", "no"]
    first, second = found[INDUCTION].appeared
    assert (first.layer, first.head, first.before, first.at) == (1, 3, 200, 400)
    assert (second.layer, second.head, second.before, second.at) == (0, 1, 400, 800)
    assert 0.65 < first.rise.low < 0.7 < first.rise.high < 0.75
    assert first.p < 0.01
    assert found[OFFSET].appeared[0].name == "previous token"
    assert found[INDUCTION].counts == (0, 0, 1, 2)
    assert found[INDUCTION].answer.startswith(
        "Induction heads: the first, 1.3, appears between steps 200 and 400: attention above the null rises by 0.6"
    )
    assert found[FIRST].answer == "First token heads: 0 at step 800, 0 at step 100."
    table = kinds_over_steps.over_steps_table(list(found.values()))
    assert [row[:5] for row in table.rows] == [
        ("offset", "0.2", "previous token", 400, 800),
        ("induction", "1.3", "induction", 200, 400),
        ("induction", "0.1", "induction", 400, 800),
    ]


def test_a_head_that_was_there_before_does_not_appear():
    drawn = run(np.random.default_rng(0), 0.02)
    drawn[:, :, 2, 1, 3] += 0.7
    found = told(drawn)[INDUCTION]
    assert (found.grade, found.appeared, found.counts) == ("no", (), (1, 1, 1, 1))


def test_a_rise_that_does_not_reach_the_kind_does_not_count():
    """Less than nothing becomes nothing: that is a rise, but no head of the kind."""
    drawn = run(np.random.default_rng(0), 0.02)
    drawn[:2, :, 2, 1, 3] -= 0.4
    assert told(drawn)[INDUCTION].appeared == ()


def test_a_checkpoint_that_does_not_tell_is_not_one_without_the_head():
    drawn = run(np.random.default_rng(0), 0.02)
    # half of the texts have it: neither significant nor excluded
    drawn[1, ::4, 2, 1, 3] += 0.6
    drawn[2:, :, 2, 1, 3] += 0.7
    assert told(drawn)[INDUCTION].appeared[0].before == 100


def wrong(draws):
    """Share of runs in which something appears, of heads that are of a kind from the beginning and vary by text."""
    rng = np.random.default_rng(1)
    return np.mean([any(one.appeared for one in told(run(rng, 0.5, 0.4)).values()) for _ in range(draws)])


def test_noise_is_seldom_called_an_appearance():
    assert wrong(10) <= 0.1


@pytest.mark.extended
def test_noise_is_called_an_appearance_in_at_most_five_percent():
    # 300 draws at 5 % have more than 8.5 % with a probability of 1 %
    assert wrong(300) <= 0.085


def test_without_the_correction_noise_appears(monkeypatch):
    monkeypatch.setattr(kinds_over_steps, "benjamini_hochberg", lambda p: p)
    assert wrong(4) > 0.5


def test_wrong_input_is_refused():
    one = checkpoint(run(np.random.default_rng(0), 0.02)[0])
    few = HeadKinds(one.kinds, one.offset, 31, TEXTS, 32)
    for kinds, steps, says in (
        ([one], [100], "need two checkpoints; got 1"),
        ([one, one], [200, 100], r"later step than the one before; got steps \[200, 100\]"),
        ([one, few], [100, 200], "must be of one model; got 2 sizes"),
    ):
        with pytest.raises(ValueError, match=says):
            kinds_over_steps.kinds_over_steps(kinds, steps)
