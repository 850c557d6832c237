import numpy as np
import pytest

from ordinate.replications.papers.wang_chen import absolute_error, learned_table, order_error, sinusoid_table
from ordinate.replications.random_models import random_decoder


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


def test_a_learned_table_is_read_as_far_as_it_was_trained_and_others_have_none():
    model = random_decoder(0, "learned")
    model.trained_length = 20
    (rows,) = model.model.schemes.parameters()
    assert np.allclose(learned_table(model), rows[:20].detach().numpy())
    for scheme in ("rope", "sinusoidal", "none"):
        assert learned_table(random_decoder(0, scheme)) is None
