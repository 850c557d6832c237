import pytest
import torch

from ordinate.replications.papers.song import (
    decompose,
    mean_cosine,
    middle_streams,
    permuted_places,
    planted,
    position_cosine,
    position_rank,
    square_error,
    stable_rank,
)
from ordinate.replications.random_models import attention_outputs, random_decoder, random_texts


def test_parts_sum_to_the_states_and_their_squares_to_its_square():
    h = planted(0)[:5, :7]
    parts = decompose(h)
    assert torch.allclose(parts.mean + parts.position + parts.context[:, None] + parts.residual, h)
    assert square_error(h, parts) < 1e-12


def test_the_planted_rank_is_found():
    assert stable_rank(decompose(planted(1)).position) == pytest.approx(4, abs=0.5)


def test_known_ranks_and_cosines():
    rows = torch.eye(3)
    assert stable_rank(2 * rows) == pytest.approx(3)
    assert stable_rank(torch.ones(4, 3)) == pytest.approx(1)
    assert mean_cosine(rows, -2 * rows) == pytest.approx(1 / 3)


def test_a_model_is_read_at_its_middle_layer_without_the_first_token():
    model, ids = random_decoder(0, "learned"), random_texts(0, 20, 9)
    whole = attention_outputs(model, ids).streams
    assert torch.allclose(middle_streams(model, ids), whole[2][:, 1:], atol=1e-6)


def test_in_random_order_of_places_the_planted_part_by_position_is_gone():
    h = planted(0)
    mixed = permuted_places(h, 0)
    # each text keeps its vectors
    assert torch.allclose(mixed.sum(1), h.sum(1))
    assert not torch.equal(mixed[0].argsort(0), mixed[1].argsort(0))
    assert position_rank(h) < 5
    assert position_rank(mixed) > 6
    assert position_cosine(h) > 0.3
