"""Quantities of an evaluation: their intervals hold possible values only."""

import numpy as np
import pytest

from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.statistics import estimate_ratio


def test_no_interval_of_bits_per_byte_ends_below_zero():
    amounts, sizes = np.array([[3000.0, 6000.0]]), np.array([1000.0, 1000.0])
    symmetric = estimate_ratio(amounts, sizes).interval
    assert symmetric[0] < 0
    assert BITS_PER_BYTE.interval(amounts, sizes) == (0.0, pytest.approx(symmetric[1]))
    assert BITS_PER_BYTE.interval(amounts[:, :1], sizes[:1]) is None
    close = np.array([[4400.0, 4500.0]])
    assert BITS_PER_BYTE.interval(close, sizes) == estimate_ratio(close, sizes).interval
