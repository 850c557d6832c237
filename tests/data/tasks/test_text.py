import numpy as np
import pytest
import torch

from ordinate.data.tasks.text import Text


def test_targets_are_the_next_tokens_and_every_place_is_drawn():
    tokens = np.arange(40, dtype=np.uint8)
    task = Text(tokens=tokens, vocabulary=256, length=8)
    batch = task.sample(torch.Generator().manual_seed(0), 2000)
    assert batch.inputs.shape == batch.targets.shape == (2000, 8)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert sorted(batch.inputs[:, 0].unique().tolist()) == list(range(32))


def test_the_same_generator_gives_the_same_batch():
    task = Text(tokens=np.arange(100, dtype=np.uint16), vocabulary=300, length=5)
    one, other = (task.sample(torch.Generator().manual_seed(3), 4).inputs for _ in range(2))
    assert torch.equal(one, other)
    assert task.vocabulary == 300


def test_a_text_shorter_than_one_window_is_refused():
    with pytest.raises(
        ValueError, match="must have at least 9 tokens; it has 8; give more text, or a smaller --length"
    ):
        Text(tokens=np.zeros(8, np.uint8), vocabulary=256, length=8)
    assert Text(tokens=np.zeros(9, np.uint8), vocabulary=256, length=8).sample(torch.Generator(), 1).inputs.shape == (
        1,
        8,
    )
