import numpy as np
import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.masked import Masked

TEXT = np.arange(1000, dtype=np.uint16) % 50


def drawn(count=400, seed=0, **options):
    given = {"tokens": TEXT, "vocabulary": 51, "length": 25} | options
    return Masked(**given).sample(torch.Generator().manual_seed(seed), count)


def test_fifteen_of_a_hundred_are_asked_and_most_of_those_hidden():
    batch = drawn()
    asked = batch.targets != SILENT
    assert abs(asked.float().mean() - 0.15) < 0.015
    hidden, same = batch.inputs == 50, batch.inputs == batch.targets
    assert abs(hidden[asked].float().mean() - 0.8) < 0.03
    # of the swapped ones a few are what they were
    assert abs(same[asked].float().mean() - 0.1) < 0.03
    assert not hidden[~asked].any()
    assert asked.any(1).all()
    assert len(batch.inputs[asked & ~hidden & ~same].unique()) > 30


def test_the_rest_is_the_text_and_targets_are_what_it_said():
    batch = drawn()
    asked = batch.targets != SILENT
    whole = torch.where(asked, batch.targets, batch.inputs)
    assert torch.equal((whole[:, 1:] - whole[:, :-1]) % 50, torch.ones_like(whole[:, 1:]))
    assert sorted(whole[:, 0].unique().tolist()) == list(range(50))


def test_shares_are_options():
    batch = drawn(share=1.0, hidden=0.0, swapped=0.0)
    assert torch.equal(batch.inputs, batch.targets)
    batch = drawn(share=0.5, hidden=0.0, swapped=1.0, mask=3, vocabulary=50)
    asked = batch.targets != SILENT
    assert abs(asked.float().mean() - 0.5) < 0.03
    # the mask is never what another token is swapped for
    assert not ((batch.inputs == 3) & (batch.targets != 3) & asked).any()
    assert drawn(share=1e-9).targets.ne(SILENT).sum(1).tolist() == [1] * 400


def test_the_same_generator_gives_the_same_batch():
    one, same, other = drawn(seed=3), drawn(seed=3), drawn(seed=4)
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert not torch.equal(one.targets, other.targets)


def test_an_encoder_learns_it():
    from ordinate import Encoder, EncoderShape

    torch.manual_seed(0)
    model = Encoder(EncoderShape(vocabulary=51, width=32, layers=1, heads=2, scheme="rope", max_length=25))
    task, generator = Masked(tokens=TEXT, vocabulary=51, length=25), torch.Generator().manual_seed(0)
    optimiser, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(60):
        batch = task.sample(generator, 32)
        loss = torch.nn.functional.cross_entropy(model.answer(batch).flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"length": 1001}, "the text must hold at least 1001 tokens; it holds 1000; give more text"),
        ({"mask": 51}, "the mask is one of 51 tokens, and not the only one; got 51; count it"),
        ({"share": 0.0}, "share lies above 0 and up to 1; got 0.0"),
        ({"hidden": 0.8, "swapped": 0.3}, "hidden and swapped are shares of the chosen tokens; got 0.8 and 0.3"),
    ],
)
def test_what_makes_no_task_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        drawn(**options)
