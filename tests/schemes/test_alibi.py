import math
from dataclasses import replace

import pytest
import torch

from ordinate import Decoder, Geometry, Shape, attend
from ordinate.core import catalog
from ordinate.schemes import Alibi
from ordinate.testing import check_scheme


def published(heads):
    # get_slopes of the paper's code (ofirpress/attention_with_linear_biases)
    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + published(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", range(1, 41))
def test_the_slopes_are_those_of_the_published_code(heads):
    ours, theirs = Alibi(heads=heads).slopes, published(heads)
    assert len(ours) == heads
    assert all(math.isclose(one, other, rel_tol=1e-12) for one, other in zip(ours, theirs, strict=True))


def test_golden_slopes():
    eight = [2.0**-power for power in range(1, 9)]
    assert Alibi(heads=8).slopes == eight
    twelve = Alibi(heads=12).slopes
    assert twelve[:8] == eight
    assert [round(slope, 6) for slope in twelve[8:]] == [0.707107, 0.353553, 0.176777, 0.088388]
    assert [round(slope, 6) for slope in Alibi(heads=16).slopes[:3]] == [0.707107, 0.5, 0.353553]


@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("where", [Geometry.causal(7), Geometry.full(7), Geometry.causal(2, cached=5)])
def test_the_bias_is_the_slope_times_the_distance(heads, where):
    bias = Alibi(heads=heads).bias(where)
    for h, slope in enumerate(published(heads)):
        for i, p in enumerate(where.q_pos[0, :, 0].tolist()):
            for j, r in enumerate(where.k_pos[0, :, 0].tolist()):
                assert math.isclose(bias[0, h, i, j].item(), -slope * abs(p - r), rel_tol=1e-7)
    assert bias.dtype == torch.float32


def test_every_distance_has_a_bias_of_its_own_however_narrow_the_model():
    scheme = Alibi(heads=8).bfloat16()
    row = scheme.bias(Geometry.causal(4096).block(slice(4095, 4096)))[0, :, 0]
    assert all(len(set(head.tolist())) == 4096 for head in row)
    assert (row.diff() > 0).all()
    assert (row[:, -1] == 0).all()


def test_fractional_positions_have_fractional_penalties():
    where = Geometry.from_positions(torch.tensor([[[0.0], [0.25]]], dtype=torch.float64))
    assert Alibi(heads=8).bias(where)[0, 0, 1, 0] == -0.125


def test_heads_must_be_above_zero():
    with pytest.raises(ValueError, match="heads must be above zero; got 0; give a positive heads"):
        Alibi(heads=0)


def test_three_axes_are_refused():
    with pytest.raises(ValueError, match="Alibi takes positions with 1 or 2 axis; got 3 axes"):
        Alibi(heads=2).at(Geometry.grid(2, 2, 2))


@pytest.mark.parametrize("heads", range(1, 20))
def test_even_slopes_are_those_of_attention_gym(heads):
    ours = Alibi(heads=heads, rule="even").slopes
    assert all(math.isclose(ours[h], 2 ** (-((h + 1) * 8.0 / heads)), rel_tol=1e-12) for h in range(heads))


@pytest.mark.parametrize("heads", range(2, 20))
def test_spanned_slopes_are_those_of_foundation_model_stack(heads):
    start, end = math.log2(0.5), math.log2(1 / 2**8)
    ours = Alibi(heads=heads, rule="span").slopes
    theirs = [2 ** (start + h * (end - start) / (heads - 1)) for h in range(heads)]
    assert all(math.isclose(one, other, rel_tol=1e-12) for one, other in zip(ours, theirs, strict=True))


def test_the_rules_agree_at_eight_heads_and_not_at_twelve():
    paper, even, span = (Alibi(heads=8, rule=rule).slopes for rule in ("paper", "even", "span"))
    assert paper == even == span
    paper, even, span = (Alibi(heads=12, rule=rule).slopes for rule in ("paper", "even", "span"))
    assert paper != even != span != paper
    assert Alibi(heads=1, rule="span").slopes == [0.5]


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16, 40])
@pytest.mark.parametrize("flattest", [8, 12])
def test_it_agrees_with_mpt(heads, flattest):
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    theirs = mpt.build_mpt_alibi_tensor(heads, 6, alibi_bias_max=flattest)[:, 0]
    ours = Alibi(heads=heads, min_slope_exponent=flattest, direction="signed").bias(Geometry.causal(6))[0, :, -1]
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 40])
def test_it_agrees_with_falcon(heads):
    falcon = pytest.importorskip("transformers.models.falcon.modeling_falcon")
    theirs = falcon.build_alibi_tensor(torch.ones(1, 6), heads, torch.float32)[:, 0]
    ours = Alibi(heads=heads, direction="signed").bias(Geometry.full(6))[0]
    # falcon rounds its slopes to bfloat16, and adds the same to every query: a constant of each row
    for row in range(6):
        assert torch.allclose(ours[:, row] - ours[:, row, :1], theirs, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("direction", ["both", "signed", "split_heads"])
def test_the_rounded_form_is_that_of_the_formula(direction):
    scheme = Alibi(heads=7, sloped_heads=6, direction=direction, bfloat16_factor=0.3)
    slopes, pos = published(3) * 2 if direction == "split_heads" else published(6), [0, 1, 255, 257, 1001, 2.7]
    where = Geometry.from_positions(torch.tensor(pos)[None, :, None], causal=False)
    bias = scheme.bias(where)[0]
    for h, slope in enumerate(slopes):
        products = torch.tensor(slope).bfloat16() * torch.tensor(pos).bfloat16()
        for i, p in enumerate(products.tolist()):
            for j, r in enumerate(products.tolist()):
                exact = -0.3 * (p - r if direction == "signed" else abs(p - r))
                walled = direction == "split_heads" and (pos[j] > pos[i] if h < 3 else pos[j] < pos[i])
                assert math.isclose(bias[h, i, j], -(2.0**15) if walled else exact, rel_tol=1e-6, abs_tol=1e-6)
    assert (bias[6] == 0).all()
    assert scheme.linear_bias(where) is None
    assert not scheme.shift_invariant
    assert Alibi(heads=7).shift_invariant


def test_rounded_slopes_are_told():
    scheme = Alibi(heads=3, sloped_heads=2, rule="even", bfloat16_factor=0.5, min_slope_exponent=3)
    assert scheme.slopes == [0.5 * torch.tensor(2**-1.5).bfloat16().item(), 2**-4, 0.0]


def test_the_rounded_form_takes_one_axis():
    with pytest.raises(ValueError, match="Alibi takes positions with 1 axis; got 2 axes"):
        Alibi(heads=2, bfloat16_factor=1.0).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("start", [0, 300, 2**20])
@pytest.mark.parametrize("direction", ["both", "signed", "split_heads"])
def test_every_way_to_compute_attention_has_the_rounded_bias(direction, start):
    scheme, names = Alibi(heads=4, rule="even", bfloat16_factor=0.7, direction=direction), set()
    q, k = torch.randn(2, 1, 4, 300, 8).unbind()
    for where in (Geometry.causal(300), Geometry.packed([140, 160]), Geometry.causal(1, cached=299)):
        at = scheme.at(replace(where, q_pos=where.q_pos + start, k_pos=where.k_pos + start))
        assert at.offset_table is None
        products = scheme._rounded_products(at.where.k_pos)
        theirs = 0.7 * (products[:, :, None] - products[:, :, -where.shape[0] :, None])
        theirs = theirs if direction == "signed" else -theirs.abs()
        rows = q[:, :, -where.shape[0] :]
        for name in catalog.names("ordinate.attention.backends"):
            try:
                out = attend(rows, k, k, at, backend=name)
            except ValueError:
                continue
            names.add(name)
            scores = (rows @ k.mT / math.sqrt(8) + theirs).masked_fill(~where.visible[:, None], float("-inf"))
            first = slice(0, 2) if direction == "split_heads" else slice(None)
            assert torch.allclose(out[:, first], (scores.softmax(-1) @ k)[:, first], rtol=0, atol=1e-5), name
    assert names >= {"reference", "sdpa", "decode"}
    # they read a table of distances
    assert names.isdisjoint({"native", "offset_bias", "window"})


@pytest.mark.parametrize(("sloped", "heads"), [(3, 8), (4, 6), (8, 8)])
def test_heads_without_slope_are_those_of_x_transformers(sloped, heads):
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.AlibiPositionalBias(sloped, total_heads=heads)(7, 7)
    ours = Alibi(heads=heads, sloped_heads=sloped).bias(Geometry.full(7))[0]
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=0)


@pytest.mark.parametrize("sides", ["both", "signed"])
def test_a_scheme_or_model_in_float64_has_its_bias_in_float64(sides):
    where, ahead = Geometry.full(7), torch.arange(7)[None] - torch.arange(7)[:, None]
    far = ahead.abs() if sides == "both" else -ahead
    exact = -torch.tensor(Alibi(heads=6).slopes, dtype=torch.float64)[:, None, None] * far
    model = Decoder(Shape(vocabulary=5, width=12, heads=6, layers=1, scheme=f"alibi:direction={sides}")).double()
    for scheme in (Alibi(heads=6, direction=sides).double(), model.schemes[0]):
        assert torch.equal(scheme.bias(where)[0], exact)
        assert scheme.linear_bias(where).dtype == torch.float64
    q = torch.randn(1, 6, 7, 4, dtype=torch.float64)
    out = attend(q, q, q, Alibi(heads=6, direction=sides).double().at(where))
    assert torch.allclose(out, (q @ q.mT / 2 + exact).softmax(-1) @ q, rtol=0, atol=1e-13)


def test_the_type_of_the_bias_is_converted_as_that_of_a_parameter_but_not_to_16_bits():
    alibi = Alibi(heads=6)
    for convert, dtype in (
        (alibi.half, torch.float32),
        (alibi.double, torch.float64),
        (alibi.bfloat16, torch.float32),
    ):
        assert convert().bias(Geometry.causal(3)).dtype == dtype
    with torch.device("meta"):
        assert Alibi(heads=6).double().to_empty(device="cpu").bias(Geometry.causal(3)).dtype == torch.float64
    torch.set_default_dtype(torch.float64)
    try:
        assert Alibi(heads=6).bias(Geometry.causal(3)).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("sides", ["both", "signed"])
def test_heads_without_slope_see_no_position(sides):
    scheme = Alibi(heads=5, sloped_heads=2, direction=sides)
    assert scheme.slopes == [2**-4, 2**-8, 0, 0, 0]
    bias = scheme.bias(Geometry.full(4))
    assert bias.shape == (1, 5, 4, 4)
    assert (bias[:, 2:] == 0).all()
    assert bias[0, :2, 3, 0].tolist() == [-3 / 16, -3 / 256]


def test_adding_the_slope_times_the_place_of_the_key_is_the_signed_form():
    q, k, v = torch.randn(3, 1, 4, 6, 8, dtype=torch.float64).unbind()
    scheme, where = Alibi(heads=4, direction="signed"), Geometry.full(6)
    out = attend(q, k, v, scheme.at(where))
    added = torch.tensor(scheme.slopes, dtype=torch.float64)[:, None, None] * torch.arange(6)
    weights = (q @ k.mT / math.sqrt(8) + added).softmax(-1)
    assert torch.allclose(out, weights @ v, rtol=0, atol=1e-13)


def test_halves_look_to_one_side_each():
    scheme = Alibi(heads=6, sloped_heads=4, direction="split_heads")
    assert scheme.slopes == [2**-4, 2**-8, 2**-4, 2**-8, 0, 0]
    v = torch.eye(5, dtype=torch.float64).expand(1, 6, 5, 5)
    q = torch.randn(1, 6, 5, 5, dtype=torch.float64)
    weights = attend(q, q, v, scheme.at(Geometry.full(5)))[0]
    past = torch.ones(5, 5).tril().bool()
    assert (weights[:2][:, ~past] == 0).all()
    assert (weights[:2][:, past] > 0).all()
    assert (weights[2:4][:, ~past.T] == 0).all()
    assert (weights[2:4][:, past.T] > 0).all()
    assert (weights[4:] > 0).all()
    bias = scheme.bias(Geometry.full(5))[0]
    for h, i, j in ((0, 4, 1), (1, 3, 3), (2, 1, 4), (3, 0, 4)):
        assert bias[h, i, j] == -scheme.slopes[h] * abs(i - j)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_half_that_finds_nothing_on_its_side_sees_the_others_alike(dtype, backend):
    scheme = Alibi(heads=2, direction="split_heads")
    where = Geometry.cross(1, 4)
    ahead = Geometry(where.q_pos + 9, where.k_pos)
    q, k = torch.randn(2, 1, 2, 1, 8).to(dtype).unbind()
    v = torch.arange(4.0)[:, None].expand(1, 2, 4, 8).to(dtype)
    out = attend(q, k.expand(1, 2, 4, 8), v, scheme.at(ahead), backend=backend)
    assert torch.allclose(out[0, 1].float(), torch.tensor(1.5), rtol=0, atol=0.01)
    assert out.isfinite().all()


def test_trained_slopes_are_initialised_by_the_rule():
    for sides in ("both", "split_heads", "separate"):
        fixed = Alibi(heads=4, direction="both" if sides == "separate" else sides)
        trained = Alibi(heads=4, direction=sides, trainable=True)
        assert torch.allclose(trained.bias(Geometry.full(9)), fixed.bias(Geometry.full(9)), rtol=1e-6, atol=0)
        assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(trained.slopes, fixed.slopes, strict=True))


@pytest.mark.parametrize("sides", ["both", "signed", "split_heads", "separate"])
def test_trained_slopes_and_their_gradients_are_those_of_the_formula(sides):
    scheme = Alibi(heads=5, sloped_heads=4, direction=sides, trainable=True).double()
    with torch.no_grad():
        scheme.log_slopes.add_(torch.randn_like(scheme.log_slopes))
    bias = scheme.bias(Geometry.full(6))
    weights = torch.randn_like(bias)
    numbers = scheme.log_slopes.tolist()
    slope = torch.zeros_like(scheme.log_slopes)
    for h in range(4):
        for i in range(6):
            for j in range(6):
                row = 1 if sides == "separate" and j > i else 0
                far = i - j if sides == "signed" else abs(i - j)
                exact = -math.exp(numbers[row][h]) * far
                walled = sides == "split_heads" and (j > i if h < 2 else j < i)
                assert abs(bias[0, h, i, j].item() - (-(2.0**15) if walled else exact)) <= 1e-13
                slope[row, h] += 0 if walled else exact * weights[0, h, i, j].item()
    (bias * weights).sum().backward()
    assert torch.allclose(scheme.log_slopes.grad, slope, rtol=0, atol=1e-12)
    assert (bias[:, 4] == 0).all()


def test_two_trained_slopes_give_the_one_towards_the_past():
    scheme = Alibi(heads=2, direction="separate", trainable=True)
    with torch.no_grad():
        scheme.log_slopes.copy_(torch.tensor([[0.5, 0.25], [2.0, 4.0]]).log())
    assert [round(slope, 6) for slope in scheme.slopes] == [0.5, 0.25]
    bias = scheme.bias(Geometry.full(3))[0]
    assert torch.allclose(bias[:, 1], torch.tensor([[-0.5, 0, -2.0], [-0.25, 0, -4.0]]))


@pytest.mark.parametrize(
    ("metric", "measure"),
    [
        ("euclidean", lambda x, y: math.sqrt(x * x + y * y)),
        ("manhattan", lambda x, y: abs(x) + abs(y)),
        ("chebyshev", lambda x, y: max(abs(x), abs(y))),
    ],
)
def test_on_a_grid_the_metric_defines_the_distance(metric, measure):
    scheme, where = Alibi(heads=2, metric=metric), Geometry.grid(3, 4)
    bias, places = scheme.at(where).bias, where.q_pos[0].tolist()
    for h, slope in enumerate(scheme.slopes):
        for i, (r, c) in enumerate(places):
            for j, (s, d) in enumerate(places):
                exact = -slope * measure(r - s, c - d)
                assert math.isclose(bias[0, h, i, j].item(), exact, rel_tol=1e-6, abs_tol=0)


@pytest.mark.parametrize("sides", ["signed", "split_heads", "separate"])
def test_a_grid_has_no_past(sides):
    scheme = Alibi(heads=2, direction=sides, trainable=sides == "separate")
    with pytest.raises(ValueError, match="Alibi takes positions with 1 axis; got 2 axes"):
        scheme.at(Geometry.grid(2, 2))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "odd"}, "no rule of alibi is named 'odd'; there are: even, paper, span"),
        ({"direction": "all"}, "no direction of alibi is named 'all'"),
        ({"metric": "taxi"}, "no metric is named 'taxi'; there are: chebyshev, euclidean, manhattan"),
        ({"min_slope_exponent": 0.0}, "min_slope_exponent must be above zero; got 0.0"),
        ({"sloped_heads": 5}, "sloped_heads must be some of the heads; got 5 of 4; give 1 to 4"),
        ({"sloped_heads": 0}, "sloped_heads must be some of the heads; got 0 of 4; give 1 to 4"),
        (
            {"sloped_heads": 3, "direction": "split_heads"},
            "an even number of sloped heads; got 3; set sloped_heads to an even number",
        ),
        (
            {"direction": "signed", "metric": "manhattan"},
            "metric has an effect with direction='both' only, .*; got metric='manhattan' with direction='signed'",
        ),
        ({"direction": "separate"}, "two slopes a head are trained; got trainable=False; add trainable=True"),
        ({"bfloat16_factor": 0.0}, "bfloat16_factor must be above zero; got 0.0; give a positive bfloat16_factor"),
        ({"bfloat16_factor": math.inf}, "bfloat16_factor must be finite; got inf; give a number"),
        (
            {"bfloat16_factor": 0.5, "trainable": True},
            "rounds fixed slopes, without gradients; got bfloat16_factor=0.5 with trainable=True; leave one of",
        ),
        (
            {"bfloat16_factor": 0.5, "metric": "manhattan"},
            "on which every metric is the same; got bfloat16_factor=0.5 with metric='manhattan'; leave one of them",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Alibi(**{"heads": 4} | options)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [
        {"rule": "span", "min_slope_exponent": 10.0},
        {"sloped_heads": 3},
        {"direction": "signed"},
        {"direction": "split_heads"},
        {"direction": "separate", "trainable": True},
        {"sloped_heads": 2, "direction": "split_heads", "trainable": True},
        {"bfloat16_factor": 0.35},
        {"bfloat16_factor": 0.35, "direction": "signed", "rule": "even"},
        {"bfloat16_factor": 0.35, "direction": "split_heads", "sloped_heads": 2},
    ],
    ids=str,
)
def test_every_option_keeps_the_contract(options):
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Alibi, **options) if one.message]
    assert not broken, "\n".join(broken)


@pytest.mark.extended
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_two_axes_keep_the_contract(metric):
    class OnGrids(Alibi):
        __doc__ = Alibi.__doc__
        axes = (2,)

    broken = [f"{one.name}: {one.message}" for one in check_scheme(OnGrids, metric=metric) if one.message]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16, 40])
def test_it_agrees_with_bloom(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 6), heads, torch.float32)[:, 0]
    # bloom adds slope x key position: the same up to a constant in each row
    ours = Alibi(heads=heads).bias(Geometry.causal(6))[0, :, -1]
    assert torch.allclose(ours - ours[:, :1], theirs, rtol=1e-6, atol=1e-6)


def test_bloom_with_a_padded_row():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mask = torch.tensor([[0, 1, 1]])
    theirs = bloom.build_alibi_tensor(mask, 2, torch.float32)[:, 0]
    assert theirs.tolist() == [[0, 0, 0.0625], [0, 0, 0.00390625]]
    ours = Alibi(heads=2).bias(Geometry.padded(mask.bool()))[0, :, -1]
    assert (ours - ours[:, :1]).equal(theirs)
