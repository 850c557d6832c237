import math

import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.kazemnejad import EXAMPLE, jensen_shannon, random_rows, reversed_divergence

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
