import numpy as np
import pytest

from ordinate.replications.papers.wang_chen import absolute_error, order_error, sinusoid_table


@pytest.mark.extended
def test_position_is_read_from_a_table_that_has_it_and_not_from_noise():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((120, 6))
    line = np.column_stack([noise, np.arange(120.0) / 60 - 1])
    assert absolute_error(line, rng) == 0
    assert absolute_error(noise, rng) > 20
    assert order_error(line, rng) < 5
    assert 25 < order_error(line, rng, chance=True) < 75


@pytest.mark.extended
def test_sinusoids_have_no_absolute_error():
    assert absolute_error(sinusoid_table(), np.random.default_rng(0)) == 0
