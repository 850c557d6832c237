import torch

from ordinate.models.decoder import Decoder
from ordinate.replications.papers.ruoss import RANGE, Ruoss, drawing, trained_share
from ordinate.replications.runner import replicate
from ordinate.schemes import Randomized


def test_short_batches_train_all_positions_and_few_of_them_do_not():
    scheme = Randomized(max_length=40)
    assert trained_share(scheme, [10] * 200, 0) == 1
    assert trained_share(scheme, [10], 0) == 0.25
    assert trained_share(scheme, [40], 0) == 1


def test_positions_are_drawn_inside_the_context_alike_and_not_after_it():
    torch.manual_seed(0)
    arm = next(arm for arm in Ruoss.arms if arm.name == "randomized sinusoidal")
    model = Decoder(arm.shape).eval()
    ids = torch.zeros(1, 8, dtype=torch.long)
    plain = model(ids)
    with drawing(model):
        first = model(ids)
        other = model(ids)
    with drawing(model):
        again = model(ids)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, plain)
    assert torch.equal(model(ids), plain)
    assert not any(module.training for module in model.modules() if isinstance(module, Randomized))
    assert arm.shape.max_length == RANGE


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("ruoss", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Ruoss.claims]
    assert all(control.recovered for control in result.controls)
    assert "24 models" in result.trained
