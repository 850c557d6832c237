from dataclasses import FrozenInstanceError

import pytest
import torch

from ordinate.core import catalog
from ordinate.schemes import Rope
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.schemes.spectra.linear import Linear
from ordinate.schemes.spectra.llama3 import Llama3
from ordinate.schemes.spectra.longrope import LongRope
from ordinate.schemes.spectra.proportional import Proportional
from ordinate.schemes.spectra.yarn import Yarn

NUMBERS = {
    "dynamic": {"trained_length": 8, "factor": 2.0},
    "linear": {"factor": 4.0},
    "llama3": {"factor": 8.0, "trained_length": 8},
    "longrope": {
        "short_factor": [1.0, 1.0, 1.5, 2.0],
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "trained_length": 8,
        "factor": 4.0,
    },
    "ntk": {"factor": 4.0},
    "proportional": {"partial_rotary_factor": 0.5},
    "rounded": {"dtype": "bfloat16"},
    "yarn": {"factor": 4.0, "trained_length": 64},
}
NAMES = catalog.names("ordinate.schemes.spectra")


def test_every_spectrum_is_tested_here():
    assert sorted(NUMBERS) == NAMES


def test_default_frequencies_are_those_of_the_paper():
    plain = Spectrum()
    expected = []
    for m in range(32):
        expected.append(1 / 10_000.0 ** (2 * m / 64))
    assert plain.rates(64, 10_000.0) == pytest.approx(expected, rel=1e-14)
    assert plain.query_key_scale == 1.0
    assert plain.length_thresholds == ()
    at = plain.rates_at(torch.zeros(2, 3), 64, 10_000.0)
    assert at.shape == (2, 3, 32)
    assert at.dtype == torch.float64
    assert at[1, 2].tolist() == plain.rates(64, 10_000.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_spectrum_is_a_value_built_from_a_dictionary(name):
    spectrum = Spectrum.parse({"name": name} | NUMBERS[name])
    assert type(spectrum) is catalog.load("ordinate.schemes.spectra", Spectrum, name)
    assert spectrum == type(spectrum)(**NUMBERS[name])
    assert hash(spectrum) == hash(type(spectrum)(**NUMBERS[name]))
    assert Spectrum.parse(spectrum) is spectrum
    with pytest.raises(FrozenInstanceError):
        spectrum.factor = 3.0


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_frequency_per_pair_also_at_short_lengths(name):
    spectrum = Spectrum.parse({"name": name} | NUMBERS[name])
    rates = spectrum.rates(8, 10_000.0)
    assert len(rates) == 4
    assert all(0 <= rate <= 1 for rate in rates)
    for length in (0.0, 1.0, 8.0):
        at = spectrum.rates_at(torch.tensor([[length]]), 8, 10_000.0)
        assert at.shape == (1, 1, 4)
        assert at.dtype == torch.float64
        assert at[0, 0].tolist() == pytest.approx(rates, rel=1e-14)


def test_a_name_alone_builds_a_spectrum_with_defaults():
    assert Spectrum.parse("proportional") == Proportional()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yran", r"no spectrum is named 'yran'; there are: dynamic, linear, llama3, .*; did you mean 'yarn'\?"),
        ("linear", r"Linear needs factor; got nothing; give each by keyword"),
        ({"name": "linear", "fctor": 4}, r"no option of Linear is named 'fctor'; .*; did you mean 'factor'\?"),
        ({"name": "linear", "factor": "four"}, r"option factor of Linear must be float; got 'four'"),
        ({"name": "linear", "factor": 0}, r"factor must be above zero; got 0.0"),
        ({"factor": 4}, r"a spectrum is given by its name; got {'factor': 4}; see ordinate list spectra"),
        ({"name": 4}, r"a spectrum is given by its name; got {'name': 4}; see"),
        (4, r"a spectrum is given by its name; got 4; see"),
    ],
)
def test_invalid_descriptions_raise_an_error(untyped, given, message):
    with pytest.raises(ValueError, match=message):
        Spectrum.parse(given)
    with pytest.raises(ValueError, match="option spectrum of Rope must be Spectrum"):
        catalog.bind(Rope, {"spectrum": given}, {"head_width": 8})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "yarn", "factor": "4", "trained_length": "128"}, Yarn(factor=4.0, trained_length=128)),
        (
            {"name": "yarn", "factor": 4, "trained_length": 128, "truncate": "false"},
            Yarn(factor=4.0, trained_length=128, truncate=False),
        ),
        ({"name": "dynamic", "trained_length": "9", "form": "qwen"}, Dynamic(trained_length=9, form="qwen")),
        ({"name": "longrope"} | NUMBERS["longrope"], LongRope(**NUMBERS["longrope"])),
        ("proportional", Proportional()),
        (Linear(factor=3), Linear(factor=3)),
        (None, None),
    ],
)
def test_an_option_of_a_scheme_may_be_a_spectrum(given, expected):
    bound = catalog.bind(Rope, {"spectrum": given}, {"head_width": 8})
    assert bound == {"head_width": 8, "spectrum": expected}
    assert Rope(**bound).spectrum == (expected or Spectrum())


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, Spectrum()),
        ({"rope_type": "default", "rope_theta": 5e5}, Spectrum()),
        ({"rope_type": None, "type": None, "factor": None}, Spectrum()),
        ({"type": "linear", "factor": 2}, Linear(factor=2)),
        ({"type": "linear", "rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, Linear(factor=2)),
        ({"rope_type": "dynamic", "factor": 2.0}, Dynamic(factor=2.0, trained_length=777)),
        (
            {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 9},
            Dynamic(factor=2.0, trained_length=9),
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 5.0},
            Llama3(factor=8.0, trained_length=777, low_freq_factor=2.0, high_freq_factor=5.0),
        ),
        (
            {"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": None},
            Proportional(partial_rotary_factor=0.25),
        ),
        ({"rope_type": "default", "mrope_section": [16, 24, 24]}, Spectrum()),
    ],
)
def test_a_rope_dictionary_of_transformers_builds_a_spectrum(parameters, expected):
    before = dict(parameters)
    assert Spectrum.from_rope_parameters(parameters, max_length=777) == expected
    assert parameters == before


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"rope_type": "yran"},
            r"no rope_type is named 'yran'; there are: default, dynamic, .*; did you mean 'yarn'\?",
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_fats": 32},
            r"no field of rope_type 'yarn' is named 'beta_fats'; .*; did you mean 'beta_fast'\?",
        ),
        ({"factor": 4.0}, r"no field of rope_type 'default' is named 'factor'; there are: "),
        ({"rope_type": "linear", "rope_theta": 1e4}, "Linear needs factor; got nothing; give each by keyword"),
        ({"rope_type": "linear", "factor": None}, "Linear needs factor; got nothing; give each by keyword"),
        ({"rope_type": "dynamic", "factor": 2.0}, "Dynamic needs trained_length; got factor; give each by keyword"),
        ({"rope_type": "yarn", "factor": 2.0}, "Yarn needs trained_length; got factor; give each by keyword"),
        ({"rope_type": "yarn"}, "Yarn needs factor, trained_length; got nothing; give each by keyword"),
        ({"rope_type": "linear", "factor": "four"}, "option factor of Linear must be float; got 'four'"),
        (
            {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}},
            "rope_parameters must describe one layer type; got full_attention, sliding_attention; give the",
        ),
    ],
)
def test_an_invalid_rope_dictionary_raises_an_error(parameters, message):
    with pytest.raises(ValueError, match=message):
        Spectrum.from_rope_parameters(parameters)
