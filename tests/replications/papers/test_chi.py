import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.chi import variance_slope


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_slope_of_a_known_variance(power):
    x = torch.randn(200, 40, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.arange(1, 41)[:, None] ** (-power / 2) + 3.0
    assert variance_slope(x) == pytest.approx(-power, abs=0.05)


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("chi").claims} == {"agrees"}
