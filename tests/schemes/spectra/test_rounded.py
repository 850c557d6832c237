import struct

import pytest

from ordinate.schemes import Rope
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.schemes.spectra.rounded import Rounded
from ordinate.testing import check_scheme


@pytest.mark.parametrize("width", [8, 40, 64])
def test_rates_are_the_nearest_numbers_of_the_type(width):
    exact = Spectrum().rates(width, 10_000.0)
    # by the struct module, which rounds to the nearest too
    halves = [struct.unpack("e", struct.pack("e", rate))[0] for rate in exact]
    assert Rounded().rates(width, 10_000.0) == halves
    # numbers of bfloat16 have 8 binary digits
    for rate, other in zip(Rounded(dtype="bfloat16").rates(width, 10_000.0), exact, strict=True):
        assert abs(rate / other - 1) <= 2**-8
        assert struct.unpack("<I", struct.pack("<f", rate))[0] % 2**16 == 0
    # a mutant: the rates as they are
    assert halves != exact
    assert halves != Rounded(dtype="bfloat16").rates(width, 10_000.0)


def test_another_type_is_refused(untyped):
    with pytest.raises(ValueError, match="no dtype of rounded is named 'float8'; there are: bfloat16, float16"):
        Rounded(dtype="float8")


@pytest.mark.extended
def test_the_contract():
    assert all(outcome.passed or outcome.skipped_reason for outcome in check_scheme(Rope, spectrum=Rounded()))
