"""Options with several values, as a person may write them."""

import pytest

from ordinate.cli.study import app


def read(*words):
    _, bound, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    return bound.arguments["plan"]


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        (["--width", "64,128"], "width", (64, 128)),
        (["--width", "32,64", "128"], "width", (32, 64, 128)),
        (["--tune", "1e-3,3e-3"], "tune", (0.001, 0.003)),
        (["--norm", "rms,layer"], "norm", ("rms", "layer")),
        (["--multiples=1,2"], "multiples", (1, 2)),
    ],
)
def test_numbers_and_fixed_words_may_be_given_with_commas(words, name, values):
    assert getattr(read(*words), name) == values


@pytest.mark.parametrize("name", ["schemes", "mixers", "task", "text"])
def test_a_comma_within_a_text_is_its_own(name):
    assert getattr(read(f"--{name}", "rope:theta=3,layout=x", "rope,none"), name) == (
        "rope:theta=3,layout=x",
        "rope,none",
    )


def test_one_value_stays_one(tmp_path):
    with pytest.raises(Exception, match="seeds"):
        read("--seeds", "1,2")
