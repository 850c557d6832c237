import math

import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.kazemnejad import (
    EXAMPLE,
    Kazemnejad,
    jensen_shannon,
    random_rows,
    reversed_divergence,
    smallest_left,
    successors,
)
from ordinate.replications.varied_lengths import SYMBOLS

P, Q = (torch.tensor([row], dtype=torch.float64) for row in EXAMPLE)


def test_the_reversed_divergence_is_that_of_the_loss_of_pytorch():
    loss = torch.nn.KLDivLoss(reduction="sum", log_target=False)
    m = (P + Q) / 2
    assert float(reversed_divergence(P, Q)) == pytest.approx(float(loss(P.log(), m) + loss(Q.log(), m)) / 2)
    assert float(reversed_divergence(P, Q)) == pytest.approx(1.57, abs=5e-3)


def test_the_divergence_is_bounded_and_the_reversed_one_is_not():
    p, q = random_rows(3), random_rows(4)
    assert float(jensen_shannon(p, q).max()) <= math.log(2)
    assert float(reversed_divergence(p, q).max()) > math.log(2)


def test_the_repository_does_not_compute_the_divergence():
    assert replicate("kazemnejad").claims[0].verdict == "does not"


def test_answers_without_a_model_are_right_where_they_should_be():
    ids = torch.tensor([[7, 2, 3, SYMBOLS, 2, 3]])
    assert smallest_left(ids)[0, 3:].tolist() == [2, 3, 7]
    assert successors(ids)[0, 3:].tolist() == [0, 3, 4]


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("kazemnejad", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Kazemnejad.claims]
    assert all(control.recovered for control in result.controls)
    assert "36 models" in result.trained
