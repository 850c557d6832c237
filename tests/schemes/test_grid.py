import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Grid
from ordinate.testing import assert_as_close, check_scheme

SIZES = {2: (3, 5), 3: (2, 3, 4)}
THETA = 10_000.0


def alternating(p, share):
    # PE(x, 2i) = sin(x / 10000^(2i/share)),  PE(x, 2i+1) = cos(x / 10000^(2i/share))
    return [(math.cos if c % 2 else math.sin)(p / THETA ** ((c - c % 2) / share)) for c in range(share)]


def sines_first(p, share):
    # omega = 1 / 10000^(arange(share / 2) / (share / 2));  [sin | cos]
    angles = [p / THETA ** (m / (share // 2)) for m in range(share // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def row(form, place, share, width):
    """The columns of one token, axis after axis, cut or filled with zeros."""
    if form == "timm":
        halves = [sines_first(p, share) for p in place]
        columns = [x for half in halves for x in half[: share // 2]] + [
            x for half in halves for x in half[share // 2 :]
        ]
    else:
        columns = [x for p in place for x in (alternating if form == "vaswani" else sines_first)(p, share)]
    return (columns + [0.0] * width)[:width]


def loop(form, axes, share, width, reverse=False):
    places = Geometry.grid(*SIZES[axes]).q_pos[0].tolist()
    rows = [row(form, place[::-1] if reverse else place, share, width) for place in places]
    return torch.tensor(rows, dtype=torch.float64)


def waves(axes, width, **options):
    where = Geometry.grid(*SIZES[axes])
    return Grid(width=width, **options).at(where).embed(torch.zeros(1, where.shape[0], width, dtype=torch.float64))[0]


@pytest.mark.covering(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["vaswani", "mae", "timm"])
@pytest.mark.parametrize(("axes", "width"), [(2, 4), (2, 7), (2, 24), (2, 63), (3, 6), (3, 24), (3, 63), (3, 129)])
def test_each_axis_has_its_sinusoids_in_separate_columns(axes, width, form, reverse):
    share = width // (2 * axes) * 2
    exact = loop(form, axes, share, width, reverse)
    assert_as_close(waves(axes, width, form=form, reverse_axes=reverse), exact, exact)


@pytest.mark.parametrize("form", ["vaswani", "mae", "timm"])
@pytest.mark.parametrize(("axes", "width"), [(2, 7), (2, 30), (2, 63), (3, 11), (3, 32), (3, 64)])
def test_truncate_rounds_each_share_up_and_cuts_the_last(axes, width, form):
    share = math.ceil(width / (2 * axes)) * 2
    exact = loop(form, axes, share, width)
    assert_as_close(waves(axes, width, form=form, remainder="truncate"), exact, exact)


def test_zero_pad_is_what_an_uneven_width_gets_anyway():
    assert waves(3, 32, remainder="zero_pad").equal(waves(3, 32))
    assert (waves(3, 32)[:, 30:] == 0).all()


def test_theta_and_scale_are_applied():
    out = waves(2, 8, theta=100.0, scale=0.5)
    # the second pair of the column axis, at row 2 and column 4
    assert abs(out[14, 6].item() - 0.5 * math.sin(4 / 10)) < 1e-15


def test_far_places_are_as_exact_in_bfloat16_as_the_type_allows():
    far = [2**24 + 1, 2**24 + 3]
    out = Grid(width=16).bfloat16().embed(torch.zeros(1, 1, 16, dtype=torch.bfloat16), torch.tensor([[far]]))
    exact = torch.tensor(row("vaswani", far, 8, 16), dtype=torch.float64)
    assert out[0, 0].equal(exact.bfloat16())


def test_the_gradient_passes_through():
    x = torch.randn(2, 15, 8, dtype=torch.float64, requires_grad=True)
    out = Grid(width=8).at(Geometry.grid(3, 5)).embed(x)
    assert torch.allclose(out - x, waves(2, 8), rtol=0, atol=1e-15)
    (gradient,) = torch.autograd.grad((out * x.detach()).sum(), x)
    assert gradient.equal(x.detach())


def served(axes, width, form, rest):
    """Whether the last axis keeps a sine and a cosine of one frequency."""
    share = math.ceil(width / (2 * axes)) * 2 if rest else width // (2 * axes) * 2
    kept = min(share, width - share * (axes - 1))
    return kept >= 2 if form == "vaswani" else kept > share // 2


@pytest.mark.covering(1)
@pytest.mark.parametrize("width", [width for width in range(1, 40) if width % 12])
@pytest.mark.parametrize("form", ["vaswani", "mae", "timm"])
@pytest.mark.parametrize("rest", [None, "truncate"])
@pytest.mark.parametrize("axes", [2, 3])
def test_an_axis_is_felt_or_refused_but_never_dropped(axes, rest, form, width):
    if not served(axes, width, form, rest):
        with pytest.raises(ValueError, match="each axis needs a sine and a cosine"):
            waves(axes, width, form=form, remainder=rest)
        return
    table = waves(axes, width, form=form, remainder=rest).unflatten(0, SIZES[axes])
    for axis in range(axes):
        assert table.diff(dim=axis).abs().flatten(0, -2).amax(-1).min() > 0.4


@pytest.mark.parametrize(
    ("axes", "width", "rest"), [(2, 2, None), (2, 5, "truncate"), (3, 4, "truncate"), (3, 8, "truncate")]
)
def test_the_widths_at_which_others_lose_an_axis_are_refused(axes, width, rest):
    with pytest.raises(ValueError, match=f"each axis needs a sine and a cosine; got {width} columns for {axes} axes"):
        waves(axes, width, remainder=rest)


def test_three_axes_need_more_columns_than_two():
    scheme = Grid(width=5)
    scheme.at(Geometry.grid(2, 2))
    with pytest.raises(ValueError, match="got 5 columns for 3 axes; give a width of 6 or more"):
        scheme.at(Geometry.grid(2, 2, 2))


def test_rest_without_effect_is_refused():
    with pytest.raises(
        ValueError, match="got remainder='truncate' at width 24, where it has no effect; leave remainder out"
    ):
        Grid(width=24, remainder="truncate")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", ["form", "remainder"])
def test_an_unknown_word_is_refused(name):
    with pytest.raises(ValueError, match=f"no {name} is named 'trunkate'; there are: "):
        Grid(**{"width": 7, name: "trunkate"})


@pytest.mark.parametrize("axes", [1, 4])
def test_one_axis_and_four_are_refused(axes):
    with pytest.raises(ValueError, match=rf"Grid takes positions with 2 or 3 axis; got {axes} axes"):
        Grid(width=32).at(Geometry.from_positions(torch.zeros(1, 3, axes, dtype=torch.long)))


def test_a_width_too_small_for_any_number_of_axes_is_refused_at_birth():
    with pytest.raises(ValueError, match="got 3 columns for 2 axes; give a width of 4 or more"):
        Grid(width=3)


@pytest.mark.parametrize("given", [{"width": 0}, {"width": 8, "theta": 0.0}, {"width": 8, "scale": -1.0}])
def test_sizes_must_be_above_zero(given):
    name, value = list(given.items())[-1]
    with pytest.raises(ValueError, match=f"{name} must be above zero; got {value}; give a positive {name}"):
        Grid(**given)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options", [{"form": "mae"}, {"form": "timm", "reverse_axes": True}, {"remainder": "truncate"}]
)
def test_it_keeps_the_contract_with_other_options(options):
    broken = {came.name: came.message for came in check_scheme(Grid, **options) if came.message}
    assert broken == {}


@pytest.mark.parametrize("height", [3, 7])
def test_it_agrees_with_vit_mae(height):
    mae = pytest.importorskip("transformers.models.vit_mae.modeling_vit_mae")
    theirs = mae.build_2d_sinusoidal_position_embedding(height, 5, 24, dtype=torch.float64)
    ours = Grid(width=24, form="mae").at(Geometry.grid(height, 5)).embed(torch.zeros(1, 5 * height, 24).double())
    assert torch.allclose(ours[0], theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("axes", "width"), [(2, 7), (2, 8), (2, 30), (2, 64), (3, 30), (3, 64)])
def test_it_agrees_with_positional_encodings(axes, width):
    encodings = pytest.importorskip("positional_encodings.torch_encodings")
    # at widths 7 and 8 three axes are refused: the last would have no pair
    rest = {"remainder": "truncate"} if width % (2 * axes) else {}
    ours = waves(axes, width, **rest)
    kind = {2: encodings.PositionalEncoding2D, 3: encodings.PositionalEncoding3D}[axes]
    theirs = kind(width)(torch.zeros(1, *SIZES[axes], width))[0].flatten(0, -2)
    assert (theirs.double() - ours).abs().max() < 1e-6
