import pytest
import torch
from torch.nn.functional import cross_entropy

from ordinate.probing._adapter import Inputs
from ordinate.probing.measures.head_effects import effects_table, head_effects
from ordinate.testing.analytic_model import AnalyticModel

IDS = torch.randint(50, (1, 9), generator=torch.Generator().manual_seed(0))


def losses(model):
    return cross_entropy(model.forward(Inputs(IDS)).logits[0, :-1].float(), IDS[0, 1:], reduction="none").double()


def test_an_effect_is_that_of_a_head_without_its_output_matrix():
    model, cut = AnalyticModel("learned"), AnalyticModel("learned")
    cut.weights[1].out[0] = 0
    (effect,) = head_effects(model, IDS, [(1, 0)])
    assert torch.allclose(effect.change, losses(cut) - losses(model))
    assert effect.unit == "nats"
    assert len(effect.others) == 3
    assert effect.rank == sum(abs(other) < abs(effect.mean) for other in effect.others)
    assert str(effect).startswith("Without head 1.0 the loss changes by")
    assert f"more than {effect.rank} of 3 other heads" in str(effect)


def test_a_head_that_does_nothing_ranks_last_and_one_that_shouts_first():
    model = AnalyticModel("learned")
    model.weights[0].out[1] *= 0
    model.weights[0].out[0] *= 1e-3
    model.weights[1].out[0] *= 1e-3
    nothing, loud = head_effects(model, IDS, [(0, 1), (1, 1)])
    assert (nothing.mean, nothing.rank, loud.rank) == (0, 0, 3)
    table = effects_table([nothing], [f"t{place}" for place in range(9)])
    assert table.rows[2] == ("0.1", 2, "t2", 0.0, "nats")


def test_without_a_head_for_tokens_the_change_of_the_output_is_measured():
    (effect,) = head_effects(AnalyticModel("learned", head=False), IDS, [(0, 0)], others=1)
    assert effect.unit == "of its norm"
    assert len(effect.others) == 1
    assert effect.change.shape == (9,)
    assert effect.mean > 0.01
    assert "the output changes by" in str(effect)


def test_unknown_heads_and_several_texts_are_refused():
    with pytest.raises(ValueError, match=r"heads are 0\.0 to 1\.1; got 2\.0; give LAYER\.HEAD, both from 0"):
        head_effects(AnalyticModel(), IDS, [(2, 0)])
    with pytest.raises(ValueError, match="effects are measured in one text; got 2; give one"):
        head_effects(AnalyticModel(), IDS.repeat(2, 1), [(0, 0)])
