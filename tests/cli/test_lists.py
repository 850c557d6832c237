"""Options with several values, separated by spaces or commas."""

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
        (["--tune-lr", "1e-3,3e-3"], "tune_lr", (0.001, 0.003)),
        (["--norm", "rms,layer"], "norm", ("rms", "layer")),
        (["--eval-length-multiples=1,2"], "eval_length_multiples", (1, 2)),
    ],
)
def test_numbers_and_choices_may_be_separated_by_commas(words, name, values):
    assert getattr(read(*words), name) == values


@pytest.mark.parametrize("name", ["schemes", "mixers", "task", "text"])
def test_commas_in_text_options_are_kept(name):
    assert getattr(read(f"--{name}", "rope:theta=3,layout=x", "rope,none"), name) == (
        "rope:theta=3,layout=x",
        "rope,none",
    )


def test_a_single_value_is_not_split(tmp_path):
    with pytest.raises(Exception, match="seeds"):
        read("--seeds", "1,2")
