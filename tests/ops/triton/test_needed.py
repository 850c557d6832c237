"""The kernels that find needed keys, in a process of its own, which Triton interprets."""

import pytest

from tests.ops.triton.interpreter import installed, interpret_tests


@installed
@pytest.mark.extended
def test_no_more_is_left_out_than_a_rounding():
    interpret_tests("needed_interpreted.py")
