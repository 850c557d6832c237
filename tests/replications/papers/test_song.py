import pytest
import torch

from ordinate.replications.papers.song import decompose, mean_cosine, planted, square_error, stable_rank


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
