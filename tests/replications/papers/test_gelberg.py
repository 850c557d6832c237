from dataclasses import replace

import pytest
import torch

from ordinate.data.tasks.text import Text
from ordinate.models.decoder import Decoder
from ordinate.replications.papers.gelberg import SHAPE, Gelberg, distance_gradient, without_positions
from ordinate.replications.runner import replicate
from ordinate.replications.varied_lengths import VariedLengths
from ordinate.schemes import Alibi, NoPosition, Rope

IDS = torch.arange(2 * 16).reshape(2, 16)


@torch.no_grad()
def test_taking_positions_away_keeps_the_weights_and_only_they_matter():
    rotary, plain = Decoder(SHAPE).eval(), Decoder(replace(SHAPE, scheme="none")).eval()
    plain.load_state_dict(rotary.state_dict())
    assert torch.equal(without_positions(rotary)(IDS), plain(IDS))
    assert not torch.equal(rotary(IDS), plain(IDS))


def test_positions_with_weights_cannot_be_taken_away():
    with pytest.raises(RuntimeError, match="table"):
        without_positions(Decoder(replace(SHAPE, scheme="t5")))


def test_only_positions_that_see_queries_and_keys_give_equal_tokens_a_gradient():
    assert distance_gradient(NoPosition(), 0) < 1e-12
    assert distance_gradient(Rope(head_width=16), 0) > 1e-3
    # a bias prefers near tokens, but equal tokens do not tell the weights anything
    assert distance_gradient(Alibi(heads=1), 0) < 1e-12


def test_arms_go_on_from_one_model_with_as_many_steps_as_the_others():
    arms = {arm.name: arm for arm in Gelberg.arms}
    kept, dropped, none = (arms[f"text, {end}"] for end in ("kept", "dropped", "none"))
    assert kept.start is dropped.start
    assert kept.start is not None
    assert kept.steps + kept.start.steps == none.steps
    assert (kept.shape.scheme, dropped.shape.scheme, none.shape.scheme) == ("rope", "none", "none")
    assert isinstance(Gelberg().task(kept), Text)
    assert isinstance(Gelberg().task(arms["sorting, kept"]), VariedLengths)


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("gelberg", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Gelberg.claims]
    assert all(control.recovered for control in result.controls)
    assert "30 models" in result.trained
