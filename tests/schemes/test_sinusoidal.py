import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Sinusoidal
from ordinate.testing import assert_as_close, check_scheme

THETA = 10_000.0


def paper(p, width):
    # PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))
    return [(math.cos if c % 2 else math.sin)(p / THETA ** ((c - c % 2) / width)) for c in range(width)]


def truncated(p, width):
    # positional-encodings: the table of the next even width, its last column dropped
    return paper(p, width + width % 2)[:width]


def fairseq(p, width):
    # get_embedding: emb = exp(arange(half) * -log(10000) / (half - 1)); [sin | cos], a zero column if odd
    half = width // 2
    angles = [p * math.exp(m * -math.log(THETA) / (half - 1)) for m in range(half)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (width % 2)


def waves(positions, width, **options):
    x = torch.zeros(1, len(positions), width, dtype=torch.float64)
    return Sinusoidal(width=width, **options).embed(x, torch.tensor(positions)[None, :, None])[0]


def loop(formula, positions, width):
    return torch.tensor([formula(p, width) for p in positions], dtype=torch.float64)


POSITIONS = [0, 1, 2, 63, 129, 1000]


@pytest.mark.parametrize("width", [1, 2, 7, 8, 63, 129])
def test_it_is_the_formula_of_the_paper_at_any_width(width):
    assert_as_close(waves(POSITIONS, width), *[loop(paper, POSITIONS, width)] * 2)


@pytest.mark.parametrize("width", [1, 7, 63, 129])
def test_truncate_drops_the_last_column_of_the_next_even_width(width):
    out = waves(POSITIONS, width, odd_width="truncate")
    assert_as_close(out, *[loop(truncated, POSITIONS, width)] * 2)
    assert out.equal(waves(POSITIONS, width + 1)[:, :width])


@pytest.mark.parametrize("width", [6, 7, 63, 64, 129])
def test_the_tensor2tensor_form_with_a_zero_column_is_that_of_fairseq(width):
    odd = {"odd_width": "zero_pad"} if width % 2 else {}
    out = waves(POSITIONS, width, form="tensor2tensor", **odd)
    # exp(log) differs from a power by rounding, which a position of 1000 multiplies
    assert torch.allclose(out, loop(fairseq, POSITIONS, width), rtol=0, atol=1e-12)
    if width % 2:
        assert (out[:, -1] == 0).all()


@pytest.mark.parametrize(
    ("width", "odd"), [(2, None), (8, None), (7, "paper"), (7, "truncate"), (7, "zero_pad"), (63, None)]
)
def test_the_concatenated_form_has_the_columns_of_the_paper_in_another_order(width, odd):
    options = {} if odd is None else {"odd_width": odd}
    plain, out = waves(POSITIONS, width, **options), waves(POSITIONS, width, form="concatenated", **options)
    if odd == "zero_pad":
        plain, out = plain[:, :-1], out[:, :-1]
    assert out.equal(torch.cat([plain[:, 0::2], plain[:, 1::2]], -1))


@pytest.mark.parametrize("first", [0, 2, -5])
def test_the_first_position_may_count_as_any_number(first):
    out = waves(POSITIONS, 8, position_offset=first)
    assert out.equal(waves([p + first for p in POSITIONS], 8))


@pytest.mark.parametrize("begin", [1.0, 8**-0.5])
def test_a_trained_amplitude_begins_at_the_scale_given_and_gets_the_gradient_of_the_formula(begin):
    scheme = Sinusoidal(width=8, scale=begin, trainable=True).double()
    # a tensor without axes could not be sharded
    assert [value.shape for value in scheme.parameters()] == [(1,)]
    up, table = torch.randn(1, 6, 8, dtype=torch.float64), loop(paper, POSITIONS, 8)
    out = scheme.embed(torch.zeros(1, 6, 8, dtype=torch.float64), torch.tensor(POSITIONS)[None, :, None])
    # the scale is initialised in float32
    assert torch.allclose(out[0], float(torch.tensor(begin)) * table, rtol=0, atol=1e-12)
    (out * up).sum().backward()
    exact = sum(up[0, i, c].item() * paper(p, 8)[c] for i, p in enumerate(POSITIONS) for c in range(8))
    assert abs(scheme.scale.grad.item() - exact) < 1e-12


def test_an_amplitude_that_is_not_trained_is_no_parameter():
    assert list(Sinusoidal(width=8).parameters()) == []


def test_zero_pad_in_the_interleaved_form_is_the_even_width_and_a_zero():
    out = waves(POSITIONS, 7, odd_width="zero_pad")
    assert out[:, :6].equal(waves(POSITIONS, 6))
    assert (out[:, 6] == 0).all()


def test_the_three_conventions_differ_at_an_odd_width():
    made = [waves([1, 2, 3], 7, odd_width=odd) for odd in ("paper", "truncate", "zero_pad")]
    assert all((made[one] - made[other]).abs().max() > 0.05 for one, other in ((0, 1), (0, 2), (1, 2)))


def test_the_gradient_passes_through_and_the_amplitude_scales():
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    out = Sinusoidal(width=8, scale=0.25).embed(x, torch.arange(5)[None, :, None])
    assert torch.allclose(out, x + 0.25 * loop(paper, range(5), 8), rtol=0, atol=1e-15)
    (gradient,) = torch.autograd.grad((out * x.detach()).sum(), x)
    assert gradient.equal(x.detach())


def test_the_table_is_as_exact_in_bfloat16_as_the_type_allows():
    pos = torch.tensor([2**24 + 1])[None, :, None]
    out = Sinusoidal(width=32).bfloat16().embed(torch.zeros(1, 1, 32, dtype=torch.bfloat16), pos)
    exact = loop(paper, [2**24 + 1], 32)
    assert out[0].equal(exact.bfloat16())


def test_no_two_positions_are_closer_than_neighbours_must_be():
    table = waves(list(range(512)), 64)
    apart = torch.cdist(table, table) + 10 * torch.eye(512, dtype=torch.float64)
    bound = math.sqrt(sum(2 * (1 - math.cos(THETA ** (-2 * m / 64))) for m in range(32)))
    assert apart.min() >= 0.9 * bound


@pytest.mark.parametrize("given", [{"width": 0}, {"width": 8, "theta": 0.0}, {"width": 8, "scale": -1.0}])
def test_sizes_must_be_above_zero(given):
    name, value = list(given.items())[-1]
    with pytest.raises(ValueError, match=f"{name} must be above zero; got {value}; give a positive {name}"):
        Sinusoidal(**given)


def test_an_odd_rule_at_an_even_width_is_refused():
    with pytest.raises(
        ValueError, match="got odd_width='truncate' at width 8, where it has no effect; leave odd_width out"
    ):
        Sinusoidal(width=8, odd_width="truncate")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", ["form", "odd_width"])
def test_an_unknown_word_is_refused(name):
    with pytest.raises(ValueError, match=f"no {name} is named 'papper'; there are: "):
        Sinusoidal(**{"width": 7, name: "papper"})


@pytest.mark.extended
@pytest.mark.parametrize(
    "options", [{"trainable": True}, {"form": "concatenated", "position_offset": 2}, {"form": "tensor2tensor"}]
)
def test_it_keeps_the_contract_with_other_options(options):
    broken = {came.name: came.message for came in check_scheme(Sinusoidal, **options) if came.message}
    assert broken == {}


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Sinusoidal takes positions with 1 axis; got 2 axes"):
        Sinusoidal(width=8).at(Geometry.grid(2, 2))


def test_it_agrees_with_marian_and_roformer():
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    roformer = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    ours = waves(list(range(50)), 16, form="concatenated")
    for kind in (marian.MarianSinusoidalPositionalEmbedding, roformer.RoFormerSinusoidalPositionalEmbedding):
        theirs = kind(50, 16)
        with torch.no_grad():
            made = theirs.create_weight()
        table = theirs.weight if made is None else made
        assert (table.detach().double() - ours).abs().max() < 6e-8


@pytest.mark.parametrize("width", [16, 17])
def test_it_agrees_with_m2m100(width):
    m2m100 = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100")
    theirs = m2m100.M2M100SinusoidalPositionalEmbedding.get_embedding(50, width)
    odd = {"odd_width": "zero_pad"} if width % 2 else {}
    ours = waves(list(range(50)), width, form="tensor2tensor", **odd)
    assert theirs.shape == ours.shape
    # their angles are in float32
    assert (theirs.double() - ours).abs().max() < 2e-5


def test_it_numbers_the_tokens_as_m2m100_does():
    m2m100 = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100")
    theirs = m2m100.M2M100SinusoidalPositionalEmbedding(50, 16, padding_idx=1)(torch.full((1, 20), 7))
    ours = waves(list(range(20)), 16, form="tensor2tensor", position_offset=2)
    assert (theirs[0].double() - ours).abs().max() < 2e-5


def test_it_agrees_with_x_transformers():
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    theirs = x_transformers.ScaledSinusoidalEmbedding(16)
    ours = Sinusoidal(width=16, form="concatenated", trainable=True, scale=16**-0.5)
    assert ours.scale.equal(theirs.scale)
    added = ours.at(Geometry.causal(50)).embed(torch.zeros(1, 50, 16))
    assert (added[0] - theirs(torch.zeros(1, 50, 16))).abs().max() < 1e-6
