import math

import pytest
import torch
from torch import nn

from ordinate.data.batch import IGNORE_INDEX
from ordinate.evaluation.losses import EvaluationText
from ordinate.evaluation.masked_text import mask_tokens
from ordinate.evaluation.prediction import token_losses

MASK = 50


@pytest.fixture
def text():
    tokens = torch.randint(50, (6, 33), generator=torch.Generator().manual_seed(1))
    return EvaluationText(tokens, torch.tensor([0, 0, 1, 1, 2, 2]), ["a", "b", "c"], torch.ones(51, dtype=torch.long))


def hidden(text):
    return mask_tokens(text, 0.25, MASK, torch.Generator().manual_seed(0))


def test_so_many_tokens_of_each_piece_are_hidden_and_asked(text):
    batch = hidden(text).batch()
    gone = batch.inputs == MASK
    assert gone.sum(1).tolist() == [8] * 6
    assert torch.equal(batch.targets[gone], text.tokens[:, :32][gone])
    assert (batch.targets[~gone] == IGNORE_INDEX).all()
    assert torch.equal(batch.inputs[~gone], text.tokens[:, :32][~gone])


def test_shorter_pieces_ask_for_the_same_tokens(text):
    whole, cut = hidden(text).batch(), hidden(text).split_to(8).batch()
    assert cut.inputs.shape == (24, 8)
    assert torch.equal(cut.targets.flatten(), whole.targets.flatten())


@pytest.mark.parametrize("window", [1, 2, 8, 32])
def test_shuffling_keeps_what_is_asked_and_stays_inside_windows(text, window):
    pieces = hidden(text)
    order = pieces.shuffle(window, torch.Generator().manual_seed(2))
    place = torch.arange(32)
    assert torch.equal(order.sort(1).values, place.expand(6, 32))
    assert torch.equal(order[pieces.masked], place.expand(6, 32)[pieces.masked])
    assert ((order // window) == (place // window)).all()
    shuffled, plain = pieces.batch(order), pieces.batch()
    assert torch.equal(shuffled.targets, plain.targets)
    assert torch.equal(shuffled.inputs, plain.inputs) == (window == 1)


class Even(nn.Module):
    """Nearly uniform logits; the input token is the most probable by a small margin."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        return 1e-6 * nn.functional.one_hot(ids, 51).float() + self.weight


def test_surprise_and_right_answers_are_of_hidden_tokens_alone(text):
    batch = hidden(text).batch()
    nats, right = token_losses(Even(), batch, "fp32")
    there = batch.targets != IGNORE_INDEX
    assert nats[there].mean().item() == pytest.approx(math.log(51), abs=1e-4)
    assert (nats[~there] == 0).all()
    # the mask token is the most probable, and never correct
    assert not right.any()
    assert token_losses(Even(), mask_tokens(text, 0.25, 0, torch.Generator().manual_seed(0)).batch(), "fp32")[
        1
    ].sum() == int(((text.tokens[:, :32] == 0) & hidden(text).masked).sum())
