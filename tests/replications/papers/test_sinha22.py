import pytest

from ordinate.replications import replicate
from ordinate.replications.papers.sinha22 import repeat_table, shift_change
from ordinate.replications.random_models import random_decoder, random_texts


@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5"])
def test_relative_schemes_ignore_a_shift(scheme):
    assert shift_change(random_decoder(0, scheme), random_texts(0, 2, 9), 5) < 1e-5


def test_a_repeated_table_ignores_its_period_alone():
    model, ids = repeat_table(random_decoder(0, "learned"), 16), random_texts(0, 2, 9)
    assert shift_change(model, ids, 16) < 1e-6 < 0.1 < shift_change(model, ids, 15)


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("sinha22").claims} == {"agrees"}
