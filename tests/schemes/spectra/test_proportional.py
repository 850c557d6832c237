import itertools

import pytest
import torch

from ordinate.schemes import Rope
from ordinate.schemes.spectra.proportional import Proportional
from ordinate.testing import check_scheme


@pytest.mark.parametrize("factor", [1.0, 8.0])
@pytest.mark.parametrize("share", [0.25, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("width", [8, 64])
def test_the_first_pairs_turn_at_the_rates_of_the_whole_head(factor, share, width):
    expected = []
    for m in range(width // 2):
        turns = 2 * (m + 1) <= share * width
        expected.append(1 / 10_000.0 ** (2 * m / width) / factor if turns else 0.0)
    rates = Proportional(partial_rotary_factor=share, factor=factor).rates(width, 10_000.0)
    assert rates == pytest.approx(expected, rel=1e-13)
    assert Proportional(partial_rotary_factor=share).query_key_scale == 1.0


def test_golden_rates():
    assert Proportional(partial_rotary_factor=0.25).rates(8, 10_000.0) == [1, 0, 0, 0]
    rates = Proportional(partial_rotary_factor=0.25).rates(64, 10_000.0)
    assert rates[:8] == pytest.approx([10_000 ** (-m / 32) for m in range(8)])
    assert rates[8:] == [0.0] * 24


def test_it_spreads_the_rates_otherwise_than_turning_a_part_of_the_channels():
    q, pos = torch.randn(1, 1, 4, 16), torch.tensor([0, 1, 5, 40])[None, :, None]
    share = Rope(head_width=16, spectrum=Proportional(partial_rotary_factor=0.5)).encode_query(q, pos)
    part = Rope(head_width=16, rotary_dim=8).encode_query(q, pos)
    assert (share - part).abs().max() > 0.1
    # pair 4 is made of channels 4 and 12, which are unrotated in only one of the two
    assert share[..., 4].equal(q[..., 4])
    assert not part[..., 4].equal(q[..., 4])


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01])
def test_the_share_is_one(share):
    says = f"partial_rotary_factor must be above 0 and at most 1; got {share}; give the fraction of rotated pairs"
    with pytest.raises(ValueError, match=says):
        Proportional(partial_rotary_factor=share)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="factor must be above zero; got -1; give a positive factor"):
        Proportional(factor=-1)
    says = r"proportional must rotate at least one pair; got partial_rotary_factor 0.1 of 4 pairs; give more"
    with pytest.raises(ValueError, match=says):
        Rope(head_width=8, spectrum=Proportional(partial_rotary_factor=0.1))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("factor", "theta", "width", "share"),
    list(itertools.product([None, 1.0, 8.0], [10_000.0, 1_000_000.0], [16, 256], [1.0, 0.25, 0.3])),
)
def test_it_agrees_with_transformers(factor, theta, width, share, agrees):
    parameters = {"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share}
    numbers = {"partial_rotary_factor": share}
    if factor is not None:
        parameters["factor"] = numbers["factor"] = factor
    by_hand = Rope(head_width=width, theta=theta, spectrum=Proportional(**numbers))
    for rope in (by_hand, Rope.from_rope_parameters(parameters, head_width=width)):
        agrees(rope, parameters, width)


@pytest.mark.extended
def test_the_contract_holds():
    outcomes = check_scheme(Rope, spectrum=Proportional(partial_rotary_factor=0.5, factor=2))
    assert not [outcome for outcome in outcomes if outcome.message]
