import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.schemes.toeplitz import Toeplitz
from ordinate.testing import check_scheme


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("places", [[0, 1, 2, 3], [7, 0, 3, 3, 5]])
def test_bias_and_gradient_are_the_table_at_each_distance(causal, places):
    scheme = Toeplitz(heads=3, max_length=8).double()
    bias = scheme.bias(Geometry.from_positions(torch.tensor(places)[None, :, None], causal=causal))
    weights, slope = torch.randn_like(bias), torch.zeros_like(scheme.table)
    for h in range(3):
        for i, x in enumerate(places):
            for j, y in enumerate(places):
                assert bias[0, h, i, j] == scheme.table[x - y + 7, h]
                slope[x - y + 7, h] += weights[0, h, i, j]
    (bias * weights).sum().backward()
    assert torch.allclose(scheme.table.grad, slope, rtol=0, atol=1e-13)


def test_the_table_has_a_number_for_each_distance_and_head():
    scheme = Toeplitz(heads=500, max_length=5)
    assert scheme.table.shape == (9, 500)
    assert abs(scheme.table.std().item() - 0.02) < 0.002
    assert scheme.max_length == 5


def test_far_keys_have_the_number_of_the_farthest_distance_if_asked():
    scheme = Toeplitz(heads=2, max_length=3, out_of_range="clamp")
    assert scheme.max_length is None
    bias = scheme.at(Geometry.from_positions(torch.tensor([0, 1, 2, 3, 900])[None, :, None], causal=False)).bias[0]
    table = scheme.table.T
    for distance, row in ((0, 2), (1, 3), (2, 4), (3, 4), (4, 4)):
        query = distance
        assert bias[:, query, 0].equal(table[:, row])
    assert bias[:, 0, 4].equal(table[:, 0])
    assert bias[:, 4, 0].equal(table[:, 4])
    assert bias[:, 3, 4].equal(table[:, 0])


def test_positions_beyond_the_table_are_refused():
    with pytest.raises(ValueError, match=r"serves positions 0 to 3 \(max_length 4\); got 0 to 4"):
        Toeplitz(heads=2, max_length=4).at(Geometry.causal(5))


def test_every_backend_supports_padded_sequences_as_long_as_the_table():
    scheme = Toeplitz(heads=2, max_length=260).double()
    with torch.no_grad():
        scheme.table.mul_(50)
    padded = Geometry.padded(torch.arange(300)[None] >= 40)
    for where in (Geometry.causal(260), Geometry.full(260), padded):
        q, k, v = torch.randn(3, 1, 2, where.shape[0], 4, dtype=torch.float64).unbind()
        at, exact = scheme.at(where), attend(q, k, v, scheme.at(where), backend="reference")
        assert explain(q, k, v, at).backend in ("offset_bias", "sdpa")
        for backend in (None, "offset_bias"):
            assert torch.allclose(attend(q, k, v, at, backend=backend), exact, rtol=0, atol=1e-12)


def test_fractional_positions_are_refused():
    with pytest.raises(ValueError, match=r"Toeplitz takes integer positions; got torch.float32; round them"):
        Toeplitz(heads=2, max_length=4).at(Geometry.from_positions(torch.tensor([[[0.5], [1.0]]])))


@pytest.mark.parametrize("far", ["error", "clamp"])
def test_a_longer_table_keeps_the_numbers_and_repeats_the_farthest(far):
    scheme = Toeplitz(heads=2, max_length=3, out_of_range=far)
    longer = scheme.resized(5)
    assert longer.table.tolist() == [scheme.table[row].tolist() for row in (0, 0, 0, 1, 2, 3, 4, 4, 4)]
    assert longer.max_length == (5 if far == "error" else None)
    assert longer.bias(Geometry.causal(3)).equal(scheme.bias(Geometry.causal(3)))
    assert longer.table.requires_grad
    assert longer.resized(3).table.equal(scheme.table)
    assert scheme.resized(2).table.equal(scheme.table[1:4])


def test_a_longer_table_supports_longer_sequences():
    longer = Toeplitz(heads=2, max_length=3).resized(10)
    assert longer.at(Geometry.full(10)).bias.shape == (1, 2, 10, 10)


def stretched(numbers, size):
    # linear interpolation between the middles of equal cells, number by number
    made = []
    for place in range(size):
        x = min(max((place + 0.5) * len(numbers) / size - 0.5, 0), len(numbers) - 1)
        low = min(int(x), len(numbers) - 2)
        made.append(numbers[low] * (1 - (x - low)) + numbers[low + 1] * (x - low))
    return made


@pytest.mark.parametrize("length", [2, 3, 4, 7])
def test_a_stretched_table_is_read_off_between_its_numbers(length):
    scheme = Toeplitz(heads=2, max_length=3).double()
    made = scheme.resized(length, mode="stretch")
    for head in range(2):
        exact = torch.tensor(stretched(scheme.table[:, head].tolist(), 2 * length - 1), dtype=torch.float64)
        assert torch.allclose(made.table[:, head], exact, rtol=0, atol=1e-15)
    assert torch.allclose(made.table[length - 1], scheme.table[2], rtol=0, atol=1e-15)
    assert made.table.dtype == torch.float64


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Toeplitz(heads=0, max_length=4), "heads must be above zero; got 0"),
        (lambda: Toeplitz(heads=2, max_length=0), "max_length must be above zero; got 0"),
        (
            lambda: Toeplitz(heads=2, max_length=4, out_of_range="stop"),
            "no out_of_range of toeplitz is named 'stop'; there are: clamp, error",
        ),
        (lambda: Toeplitz(heads=2, max_length=4).resized(0), "max_length must be above zero; got 0"),
        (
            lambda: Toeplitz(heads=2, max_length=4).resized(5, mode="grow"),
            "no mode of resizing toeplitz is named 'grow'; there are: extend, stretch",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.extended
def test_clamping_keeps_the_contract():
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Toeplitz, out_of_range="clamp") if one.message]
    assert not broken, "\n".join(broken)
