import numpy as np
import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.masked import Masked

TEXT = np.arange(1000, dtype=np.uint16) % 50


def drawn(count=400, seed=0, **options):
    given = {"tokens": TEXT, "vocabulary": 51, "length": 25} | options
    return Masked(**given).sample(torch.Generator().manual_seed(seed), count)


def test_fifteen_per_cent_are_selected_and_most_of_those_masked():
    batch = drawn()
    asked = batch.targets != IGNORE_INDEX
    assert abs(asked.float().mean() - 0.15) < 0.015
    hidden, same = batch.inputs == 50, batch.inputs == batch.targets
    assert abs(hidden[asked].float().mean() - 0.8) < 0.03
    # of the swapped ones a few are what they were
    assert abs(same[asked].float().mean() - 0.1) < 0.03
    assert not hidden[~asked].any()
    assert asked.any(1).all()
    assert len(batch.inputs[asked & ~hidden & ~same].unique()) > 30


def test_unmasked_tokens_and_targets_are_the_text():
    batch = drawn()
    asked = batch.targets != IGNORE_INDEX
    whole = torch.where(asked, batch.targets, batch.inputs)
    assert torch.equal((whole[:, 1:] - whole[:, :-1]) % 50, torch.ones_like(whole[:, 1:]))
    assert sorted(whole[:, 0].unique().tolist()) == list(range(50))


def test_shares_are_options():
    batch = drawn(mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=0.0)
    assert torch.equal(batch.inputs, batch.targets)
    batch = drawn(mlm_probability=0.5, mask_replace_prob=0.0, random_replace_prob=1.0, mask=3, vocabulary=50)
    asked = batch.targets != IGNORE_INDEX
    assert abs(asked.float().mean() - 0.5) < 0.03
    # the mask is never what another token is swapped for
    assert not ((batch.inputs == 3) & (batch.targets != 3) & asked).any()
    assert drawn(mlm_probability=1e-9).targets.ne(IGNORE_INDEX).sum(1).tolist() == [1] * 400


def test_the_same_generator_gives_the_same_batch():
    one, same, other = drawn(seed=3), drawn(seed=3), drawn(seed=4)
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert not torch.equal(one.targets, other.targets)


@pytest.mark.extended
def test_an_encoder_learns_it():
    from ordinate import Encoder, EncoderShape

    torch.manual_seed(0)
    model = Encoder(EncoderShape(vocabulary=51, width=32, layers=1, heads=2, scheme="rope", max_length=25))
    task, generator = Masked(tokens=TEXT, vocabulary=51, length=25), torch.Generator().manual_seed(0)
    optimiser, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(60):
        batch = task.sample(generator, 32)
        loss = torch.nn.functional.cross_entropy(model.batch_logits(batch).flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"length": 1001}, "the text must have at least 1001 tokens; it has 1000; give more text"),
        ({"mask": 51}, "the mask token must be one of 51 tokens, and not the only one; got mask=51; include it"),
        ({"mlm_probability": 0.0}, "mlm_probability must be above 0 and at most 1; got 0.0"),
        (
            {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
            "mask_replace_prob and random_replace_prob must be shares that sum to at most 1; got 0.8 and 0.3",
        ),
    ],
)
def test_invalid_arguments_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        drawn(**options)
