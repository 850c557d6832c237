import numpy as np
import pytest

from ordinate.replications.estimates import over_seeds


@pytest.mark.extended
def test_intervals_over_eight_seeds_cover_their_mean():
    """Between 92 and 98 of 100; the plain percentile interval of eight seeds covers about 88."""
    rng = np.random.default_rng(0)
    found = [over_seeds("a", rng.standard_normal(8), [0.0, 0.0], 0) for _ in range(1500)]
    assert 0.92 < np.mean([one.low <= 0 <= one.high for one in found]) < 0.98
