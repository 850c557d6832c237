import math

import pytest
import torch
from torch import nn

from ordinate.evaluation.losses import (
    EvaluationText,
    losses_by_document,
    losses_by_position,
    next_token_losses,
    shuffle_curve,
)

VOCABULARY = 7


@pytest.fixture
def text():
    tokens = torch.randint(VOCABULARY, (6, 33))
    return EvaluationText(tokens, torch.tensor([0, 0, 1, 1, 1, 2]), ["a", "b", "c"], torch.arange(1, VOCABULARY + 1))


class Counter(nn.Module):
    """The logit of a token grows with its position, and depends on the previous token."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, ids):
        return self.table(ids) + torch.arange(ids.shape[1])[:, None] * torch.eye(VOCABULARY)[0]


def test_losses_equal_a_plain_loop(text):
    model = Counter().train()
    found = next_token_losses(model, text, "fp32")
    with torch.no_grad():
        for piece in range(6):
            for place in range(32):
                logits = model(text.tokens[piece : piece + 1, :32])[0, place].double()
                truth = -logits.log_softmax(-1)[text.tokens[piece, place + 1]]
                assert math.isclose(found[piece, place], truth, rel_tol=1e-5, abs_tol=1e-5)
    assert model.training


def test_shorter_pieces_predict_the_same_tokens(text):
    for length in (4, 8, 16, 32):
        cut = text.split_to(length)
        assert cut.tokens.shape == (6 * 32 // length, length + 1)
        assert torch.equal(cut.tokens[:, 1:].reshape(6, 32), text.tokens[:, 1:])
        assert torch.equal(cut.documents, text.documents.repeat_interleave(32 // length))


@pytest.mark.parametrize("window", [1, 2, 5, 8, 32])
def test_shuffling_moves_tokens_inside_their_window_only(text, window):
    mixed = text.shuffled(window, torch.Generator().manual_seed(0)).tokens
    assert torch.equal(mixed[:, -1], text.tokens[:, -1])
    for start in range(0, 32, window):
        part = slice(start, min(start + window, 32))
        assert torch.equal(mixed[:, part].sort(1).values, text.tokens[:, part].sort(1).values)
    assert torch.equal(mixed, text.tokens) == (window == 1)


def test_documents_add_up(text):
    nats = next_token_losses(Counter(), text, "fp32")
    rows = losses_by_document(nats, text)
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert [row["tokens"] for row in rows] == [64, 96, 32]
    assert rows[2]["bytes"] == int((text.tokens[5, 1:] + 1).sum())
    assert math.isclose(sum(row["nats"] for row in rows), nats.double().sum(), rel_tol=1e-9)


def test_places_are_means_of_their_bins():
    nats = torch.arange(20.0).view(2, 10)
    places, means = losses_by_position(nats, 5)
    assert places == [0, 2, 4, 6, 8]
    assert means == [5.5, 7.5, 9.5, 11.5, 13.5]
    assert losses_by_position(nats, 99)[0] == list(range(10))


def test_the_order_curve_begins_untouched_and_ends_wholly_shuffled(text):
    model = Counter()
    curve = shuffle_curve(model, text, "fp32", torch.Generator().manual_seed(0))
    assert [row["window"] for row in curve] == [1, 2, 4, 8, 16, 32]
    assert math.isclose(
        curve[0]["nats_per_token"], next_token_losses(model, text, "fp32").double().mean(), rel_tol=1e-9
    )
    odd = EvaluationText(text.tokens[:, :12], text.documents, text.names, text.bytes)
    assert [row["window"] for row in shuffle_curve(model, odd, "fp32", torch.Generator())] == [1, 2, 4, 8, 11]
