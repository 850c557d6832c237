import itertools
import math

import pytest
import torch

from ordinate.schemes import Rope
from ordinate.schemes.spectra.yarn import Yarn
from ordinate.testing import check_scheme


def published(width, theta, factor, trained, fast, slow, truncate):
    # sections 3.2 and 3.3 of the paper, pair by pair; the ramp runs over pairs, as in its code
    def pair(turns):
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(fast), pair(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    rates = []
    for m in range(width // 2):
        kept = 1 - min(1, max(0, (m - low) / (high - low)))
        rate = 1 / theta ** (2 * m / width)
        rates.append((1 - kept) * rate / factor + kept * rate)
    return rates


@pytest.mark.covering(1)
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("fast", "slow"), [(32.0, 1.0), (8.0, 2.0), (1.0, 1.0)])
@pytest.mark.parametrize("trained", [16, 2048])
@pytest.mark.parametrize(("factor", "theta"), [(4.0, 10_000.0), (16.0, 500_000.0), (2.5, 100.0)])
@pytest.mark.parametrize("width", [16, 128])
def test_the_rates_are_those_of_the_paper(width, theta, factor, trained, fast, slow, truncate):
    spectrum = Yarn(factor=factor, trained_length=trained, beta_fast=fast, beta_slow=slow, truncate=truncate)
    expected = published(width, theta, factor, trained, fast, slow, truncate)
    assert spectrum.rates(width, theta) == pytest.approx(expected, rel=1e-13)


def test_golden_rates_and_temperature():
    spectrum = Yarn(factor=4, trained_length=2048)
    rates = spectrum.rates(64, 10_000.0)
    assert [rates[m] for m in (0, 8, 15, -1)] == pytest.approx([1, 0.1, 0.00794984, 3.3338e-5], rel=1e-5)
    assert spectrum.query_key_scale == pytest.approx(1.138629, abs=1e-6)


def test_without_rounding_the_ramp_is_narrower():
    rounded, exact = (Yarn(factor=4, trained_length=2048, truncate=truncate) for truncate in (True, False))
    plain = Yarn(factor=1, trained_length=2048).rates(64, 10_000.0)
    between = [
        sum(rate / 4 * 1.0001 < new < rate * 0.9999 for new, rate in zip(s.rates(64, 1e4), plain, strict=True))
        for s in (rounded, exact)
    ]
    assert between[0] >= between[1]
    assert rounded.rates(64, 10_000.0) != exact.rates(64, 10_000.0)


def test_the_temperature_multiplies_scores_by_its_square():
    q, k, pos = torch.randn(1, 1, 3, 16).double(), torch.randn(1, 1, 3, 16).double(), torch.arange(3)[None, :, None]
    scores = []
    for numbers in ({}, {"attention_factor": 1.0}):
        rope = Rope(head_width=16, spectrum=Yarn(factor=4, trained_length=64, **numbers))
        scores.append(rope.encode_query(q, pos) @ rope.encode_key(k, pos).mT)
    assert torch.allclose(scores[0], (0.1 * math.log(4) + 1) ** 2 * scores[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("numbers", "magnitude"),
    [
        ({}, 0.1 * math.log(40) + 1),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 1.0}, (0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1)),
        ({"factor": 0.5}, 1.0),
    ],
)
def test_the_temperature_is_the_papers_a_ratio_or_given(numbers, magnitude):
    spectrum = Yarn(**{"factor": 40.0, "trained_length": 4096} | numbers)
    assert spectrum.query_key_scale == pytest.approx(magnitude, rel=1e-15)


@pytest.mark.parametrize("name", ["factor", "trained_length", "beta_fast", "beta_slow", "attention_factor"])
def test_every_number_lies_above_zero(name):
    numbers = {"factor": 8.0, "trained_length": 64, "beta_slow": 1.0, "beta_fast": 4.0} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0; give a positive {name}"):
        Yarn(**numbers)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            {"beta_fast": 1.0, "beta_slow": 2.0},
            "beta_fast is at least beta_slow; got 1.0 and 2.0; 32 and 1 are usual",
        ),
        (
            {"mscale": 1.0},
            "mscale and mscale_all_dim must be set together; got mscale 1.0, mscale_all_dim None; give both",
        ),
        ({"mscale_all_dim": 1.0}, "must be set together; got mscale None, mscale_all_dim 1.0; give both, or neither"),
        (
            {"mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 1.0},
            "cannot be combined with mscale and mscale_all_dim; got all of them; leave attention_factor out",
        ),
    ],
)
def test_numbers_that_say_nothing_together_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        Yarn(factor=4, trained_length=64, **numbers)


def test_the_base_lies_above_one():
    with pytest.raises(ValueError, match=r"yarn needs a base above 1; got theta 1.0; 10000 is usual"):
        Rope(head_width=8, theta=1.0, spectrum=Yarn(factor=4, trained_length=64))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("factor", "theta", "width", "share", "trained"),
    list(itertools.product([1.0, 4.0, 40.0], [10_000.0, 150_000.0], [16, 64, 128], [1.0, 0.5], [32, 4096])),
)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"truncate": False},
        {"truncate": False, "beta_fast": 1.0, "beta_slow": 1.0},
        {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25},
        {"mscale": 0.707, "mscale_all_dim": 1.0, "truncate": True},
    ],
)
def test_it_agrees_with_transformers(factor, theta, width, share, trained, more, agrees):
    parameters = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": trained,
        "rope_theta": theta,
        "partial_rotary_factor": share,
    } | more
    numbers = {Yarn.hf_fields[key]: value for key, value in more.items()}
    spectrum = Yarn(factor=factor, trained_length=trained, **numbers)
    by_hand = Rope(head_width=width, theta=theta, rotary_dim=int(width * share), spectrum=spectrum)
    for rope in (by_hand, Rope.from_rope_parameters(parameters, head_width=width)):
        agrees(rope, parameters, width)


@pytest.mark.parametrize(
    "more",
    [
        {"factor": None},
        {"mscale": 1.0},
        {"mscale": 0.5, "mscale_all_dim": 0},
        {"mscale": 0.5, "mscale_all_dim": 0.9, "attention_factor": 1.5},
        {"attention_factor": None, "beta_fast": None, "beta_slow": None, "mscale": None},
    ],
)
def test_a_dictionary_means_what_transformers_makes_of_it(more, agrees):
    parameters = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "rope_theta": 1e4}
    parameters |= more
    agrees(Rope.from_rope_parameters(parameters, head_width=64, max_length=2048), parameters, 64, max_length=2048)


def test_a_length_left_out_of_a_dictionary_is_the_longest_input(agrees):
    parameters = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4}
    rope = Rope.from_rope_parameters(parameters, head_width=64, max_length=2048)
    assert rope.spectrum == Yarn(factor=8.0, trained_length=2048)
    agrees(rope, parameters, 64, max_length=2048)


@pytest.mark.extended
@pytest.mark.parametrize("numbers", [{}, {"truncate": False}, {"mscale": 0.7, "mscale_all_dim": 1.0}])
def test_the_contract_holds(numbers):
    outcomes = check_scheme(Rope, spectrum=Yarn(factor=4, trained_length=64, beta_fast=4, **numbers))
    assert not [outcome for outcome in outcomes if outcome.message]
