import itertools

import pytest
import torch

from ordinate.schemes import Rope
from ordinate.schemes.spectra.linear import Linear
from ordinate.testing import check_scheme


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0, 7.3])
@pytest.mark.parametrize("theta", [100.0, 500_000.0])
def test_the_rates_are_the_plain_ones_divided(factor, theta):
    expected = []
    for m in range(8):
        expected.append(1 / theta ** (2 * m / 16) / factor)
    assert Linear(factor=factor).rates(16, theta) == pytest.approx(expected, rel=1e-14)
    assert Linear(factor=factor).query_key_scale == 1.0


def test_golden_rates():
    rates = Linear(factor=4).rates(64, 10_000.0)
    assert [rates[m] for m in (0, 8, 15, -1)] == pytest.approx([0.25, 0.025, 0.0033338, 3.3338e-5], rel=1e-4)


def test_it_is_rope_at_positions_divided_by_the_factor():
    q, pos = torch.randn(1, 2, 5, 16, dtype=torch.float64), torch.tensor([0.0, 1, 7, 100, 5000])[None, :, None]
    stretched = Rope(head_width=16, spectrum=Linear(factor=8)).encode_query(q, pos)
    assert torch.allclose(stretched, Rope(head_width=16).encode_query(q, pos / 8), rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [0.0, -2.0])
def test_the_factor_lies_above_zero(factor):
    with pytest.raises(ValueError, match=f"factor must be above zero; got {factor}; give a positive factor"):
        Linear(factor=factor)


@pytest.mark.parametrize(
    ("factor", "theta", "width", "share"),
    list(itertools.product([1.0, 4.0, 13.7], [10_000.0, 500_000.0], [16, 128], [1.0, 0.25])),
)
def test_it_agrees_with_transformers(factor, theta, width, share, agrees):
    parameters = {"rope_type": "linear", "factor": factor, "rope_theta": theta, "partial_rotary_factor": share}
    by_hand = Rope(head_width=width, theta=theta, rotary_dim=int(width * share), spectrum=Linear(factor=factor))
    for rope in (by_hand, Rope.from_rope_parameters(parameters, head_width=width)):
        agrees(rope, parameters, width)


@pytest.mark.extended
def test_the_contract_holds():
    outcomes = check_scheme(Rope, spectrum=Linear(factor=4))
    assert not [outcome for outcome in outcomes if outcome.message]
