import pytest

from ordinate.core.finding import Estimate
from ordinate.probing.measures.formatting import RELATIVE_UNIT, describe_effects, format_estimate, format_percent


@pytest.mark.parametrize(
    ("value", "low", "high", "written"),
    [
        (0.7061, 0.6782, 0.7384, ("0.71", "0.68", "0.74")),
        (0.00878, 0.00702, 0.01034, ("0.009", "0.007", "0.010")),
        (1.5631, 1.5204, 1.6187, ("1.56", "1.52", "1.62")),
        (0.41004, 0.40401, 0.41701, ("0.410", "0.404", "0.417")),
        (12.3456, 12.3455, 12.3457, ("12.3", "12.3", "12.3")),
        (1234.5, 1034.5, 1434.5, ("1,200", "1,000", "1,400")),
        (8.9e-7, 8.14e-7, 9.66e-7, ("8.9e-07", "8.1e-07", "9.7e-07")),
        (-0.001, -0.011, 0.009, ("0", "-0.01", "0.01")),
        (0.25, None, None, ("0.25", "", "")),
        (0.3, 0.3, 0.3, ("0.3", "0.3", "0.3")),
        (0.0, 0.0, 0.0, ("0", "0", "0")),
    ],
)
def test_significant_digits_follow_the_interval(value, low, high, written):
    assert Estimate(name="", value=value, low=low, high=high).formatted == written


def test_effects_are_described_in_words():
    turned = Estimate(name="", value=0.706, low=0.678, high=0.738, unit=RELATIVE_UNIT)
    loss = Estimate(name="", value=2.31, low=2.14, high=2.48, unit="nats per token")
    unsure = loss.model_copy(update={"value": 0.013, "low": -0.02, "high": 0.04})
    assert format_estimate(turned) == "0.71 of its norm [0.68, 0.74]"
    assert describe_effects({"Shuffling": turned}) == "Shuffling changes the output by 0.71 of its norm [0.68, 0.74]"
    both = describe_effects({"Shuffling": loss, "turning": unsure})
    assert both == "Shuffling raises the loss by 2.3 nats per token [2.1, 2.5], turning by 0.01 [-0.02, 0.04]"
    assert describe_effects({"Turning": unsure}).startswith("Turning changes the loss by 0.01 ")
    assert describe_effects({}) == ""


def test_a_share_a_little_below_nothing_is_nothing():
    assert [format_percent(share) for share in (-0.004, 0.004, -0.016, 0.996)] == ["0 %", "0 %", "-2 %", "100 %"]
