import itertools
import math

import pytest

from ordinate.schemes import Rope
from ordinate.schemes.spectra.llama3 import Llama3
from ordinate.testing import check_scheme


def published(width, theta, factor, trained, slow, fast):
    # apply_scaling of the published code of Llama 3.1, one number at a time
    rates = []
    for m in range(width // 2):
        rate = 1 / theta ** (2 * m / width)
        wavelength = 2 * math.pi / rate
        if wavelength < trained / fast:
            rates.append(rate)
        elif wavelength > trained / slow:
            rates.append(rate / factor)
        else:
            smooth = (trained / wavelength - slow) / (fast - slow)
            rates.append((1 - smooth) * rate / factor + smooth * rate)
    return rates


@pytest.mark.covering(1)
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 4.0), (0.5, 2.0), (2.0, 32.0)])
@pytest.mark.parametrize("trained", [64, 8192])
@pytest.mark.parametrize(("factor", "theta"), [(8.0, 500_000.0), (32.0, 500_000.0), (3.0, 100.0)])
@pytest.mark.parametrize("width", [16, 128])
def test_the_rates_are_those_of_the_published_code(width, theta, factor, trained, slow, fast):
    spectrum = Llama3(factor=factor, trained_length=trained, low_freq_factor=slow, high_freq_factor=fast)
    expected = published(width, theta, factor, trained, slow, fast)
    assert spectrum.rates(width, theta) == pytest.approx(expected, rel=1e-13)
    assert spectrum.query_key_scale == 1.0


def test_golden_rates():
    rates = Llama3(factor=8, trained_length=8192).rates(64, 500_000.0)
    assert [rates[m] for m in (8, 15, -1)] == pytest.approx([0.037606, 0.00137189, 3.76732e-7], rel=2e-5)


def test_fast_pairs_stay_slow_ones_are_divided_and_those_between_pass_without_a_jump():
    stretched, plain = Llama3(factor=8, trained_length=8192).rates(128, 5e5), Llama3(factor=1, trained_length=1)
    ratios = [old / new for old, new in zip(plain.rates(128, 5e5), stretched, strict=True)]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0
    assert ratios[-1] == pytest.approx(8, rel=1e-12)
    assert sum(1.001 < ratio < 7.99 for ratio in ratios) >= 5


@pytest.mark.parametrize("name", ["factor", "trained_length", "low_freq_factor", "high_freq_factor"])
def test_every_number_lies_above_zero(name):
    numbers = {"factor": 8.0, "trained_length": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0; give a positive {name}"):
        Llama3(**numbers)


def test_fast_is_at_least_slow():
    with pytest.raises(
        ValueError, match=r"high_freq_factor is at least low_freq_factor; got 1.0 and 2.0; 4 and 1 are usual"
    ):
        Llama3(factor=8, trained_length=64, low_freq_factor=2.0, high_freq_factor=1.0)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("factor", "theta", "width", "share", "trained"),
    list(itertools.product([2.0, 8.0], [10_000.0, 500_000.0], [16, 128], [1.0, 0.5], [64, 8192])),
)
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 4.0), (0.125, 0.5), (1.0, 1.0)])
def test_it_agrees_with_transformers(factor, theta, width, share, trained, slow, fast, agrees):
    parameters = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": slow,
        "high_freq_factor": fast,
        "original_max_position_embeddings": trained,
        "rope_theta": theta,
        "partial_rotary_factor": share,
    }
    spectrum = Llama3(factor=factor, trained_length=trained, low_freq_factor=slow, high_freq_factor=fast)
    by_hand = Rope(head_width=width, theta=theta, rotary_dim=int(width * share), spectrum=spectrum)
    for rope in (by_hand, Rope.from_rope_parameters(parameters, head_width=width)):
        agrees(rope, parameters, width, max_length=131_072)


@pytest.mark.extended
def test_the_contract_holds():
    outcomes = check_scheme(Rope, spectrum=Llama3(factor=8, trained_length=16))
    assert not [outcome for outcome in outcomes if outcome.message]
