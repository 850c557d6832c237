import pytest
import torch

from ordinate.probing._probe import ProbeData
from ordinate.replications import replicate
from ordinate.replications.papers.chi import Chi, variance_slope
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_slope_of_a_known_variance(power):
    x = torch.randn(200, 40, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.arange(1, 41)[:, None] ** (-power / 2) + 3.0
    assert variance_slope(x) == pytest.approx(-power, abs=0.05)


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("chi").claims} == {"agrees"}


@pytest.mark.extended
def test_a_decoder_without_positions_is_measured_with_its_mask_and_without():
    texts = ProbeData(random_texts(0, 32, 64), None, "random", natural=False)
    found = Chi().measure(Subject(random_decoder(0), texts))
    assert found["when trained"].high < -0.6
    assert abs(found["when trained"].null) < 0.05
    assert "when trained" not in Chi().measure(Subject(random_decoder(0, "rope"), texts))
