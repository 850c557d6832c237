import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.jelassi import (
    BITS,
    FITS,
    VOCABULARY,
    copy_by_attention,
    copy_by_state,
    random_symbols,
    share,
    whole,
)


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_the_state_copies_what_fits_and_guesses_the_first_symbols(extra):
    symbols = random_symbols(0, FITS + extra)
    copied = copy_by_state(symbols, BITS, 1)
    assert torch.equal(copied[:, extra:], symbols[:, extra:])
    assert whole(symbols, copied) == pytest.approx(VOCABULARY**-extra, abs=0.05)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_each_missing_bit_halves_the_strings_that_are_copied(missing):
    symbols = random_symbols(0, FITS)
    assert whole(symbols, copy_by_state(symbols, BITS - missing, 1)) == pytest.approx(2.0**-missing, abs=0.1)


def test_the_head_copies_and_a_head_of_another_distance_does_not():
    symbols = random_symbols(0, 12)
    copied = copy_by_attention(symbols)
    assert share(symbols, copied) == 1.0
    assert share(symbols.roll(1, 1), copied) < 0.2


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("jelassi").claims} == {"agrees"}
