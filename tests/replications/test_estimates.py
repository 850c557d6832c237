import numpy as np
import pytest
import torch

from ordinate.replications.estimates import of_all_texts, over_seeds, over_texts


@pytest.mark.extended
def test_intervals_over_eight_seeds_cover_their_mean():
    """Between 92 and 98 of 100; the plain percentile interval of eight seeds covers about 88."""
    rng = np.random.default_rng(0)
    found = [over_seeds("a", rng.standard_normal(8), [0.0, 0.0], 0) for _ in range(1500)]
    assert 0.92 < np.mean([one.low <= 0 <= one.high for one in found]) < 0.98


def test_of_a_mean_the_jackknife_interval_is_student_s():
    values = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = of_all_texts("a", lambda x: float(x[:, 0].mean()), values, (lambda x: float(x[:, 1].mean()), values + 5))
    half = 2.045 * float(values[:, 0].std()) / 30**0.5
    assert found.value == pytest.approx(float(values[:, 0].mean()))
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=1e-3)
    assert found.null_low < 5 + float(values[:, 1].mean()) < found.null_high


def test_without_a_null_the_null_is_zero():
    found = over_texts("a", torch.tensor([1.0, 2.0, 3.0]), None, 0, unit="nats")
    assert (found.null, found.null_low, found.unit) == (0, None, "nats")
    assert found.low < 2 < found.high
