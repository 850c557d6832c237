import itertools
import weakref

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.ops import rotate as module
from ordinate.ops.rotate import Rotation
from ordinate.schemes import Alibi, Rope
from ordinate.schemes._composition import HeadGroups, Sum
from ordinate.schemes.axial import Axial
from ordinate.schemes.xpos import Xpos
from ordinate.testing.tolerance import assert_as_close

LAYOUTS = ["half", "interleaved"]
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# in memory: heads before tokens, tokens before heads, cut out of a wider projection, every second channel
ORDERS = {
    "heads first": lambda b, h, n, d: torch.randn(b, h, n, d, dtype=torch.float64),
    "tokens first": lambda b, h, n, d: torch.randn(b, n, h, d, dtype=torch.float64).transpose(1, 2),
    "projected": lambda b, h, n, d: (
        torch.randn(b, n, 3 * h * d, dtype=torch.float64)[..., h * d : 2 * h * d]
        .unflatten(-1, (h, d))
        .transpose(1, 2)
    ),
    "off by one": lambda b, h, n, d: (
        torch.randn(b, n, h * d + 1, dtype=torch.float64)[..., 1:].unflatten(-1, (h, d)).transpose(1, 2)
    ),
    "every second": lambda b, h, n, d: torch.randn(b, h, n, 2 * d, dtype=torch.float64)[..., ::2],
    "expanded": lambda b, h, n, d: torch.randn(1, 1, n, d, dtype=torch.float64).expand(b, h, n, d),
}


def looped(x, cos, sin, layout):
    """The formula, pair by pair."""
    out, pairs = x.clone(), cos.shape[-1]
    for m in range(pairs):
        one, two = (m, m + pairs) if layout == "half" else (2 * m, 2 * m + 1)
        a, b, c, s = x[..., one], x[..., two], cos[..., m].to(x.dtype), sin[..., m].to(x.dtype)
        out[..., one], out[..., two] = a * c - b * s, b * c + a * s
    return out


def waves(b, h, n, pairs):
    return torch.randn(2, b, h, n, pairs, dtype=torch.float64).unbind()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [3, 2000])
def test_keys_are_rotated_into_part_of_other_memory(n, type, layout):
    rotation = Rotation(*waves(1, 1, n, 4), layout)
    q, k = ORDERS["projected"](2, 4, n, 10).to(type), ORDERS["tokens first"](2, 3, n, 10).to(type)
    memory = torch.full((2, 3, n + 9, 10), 3.0, dtype=type)
    usual, into = rotation(k), memory[:, :, 4:-5]
    with torch.no_grad():
        made = rotation.both(q, k, into)
    assert made[1] is into
    assert made[0].equal(rotation(q))
    assert into.equal(usual)
    assert (memory[:, :, :4] == 3).all()
    assert (memory[:, :, -5:] == 3).all()


@torch.no_grad()
def test_learned_and_narrow_rotations_into_other_memory_are_those_without():
    learned = Rotation(*(wave.requires_grad_() for wave in waves(1, 1, 3, 4)), "half")
    q, k = torch.randn(2, 1, 2, 3, 8)
    assert learned.both(q, k, torch.empty_like(k))[1].equal(learned(k))
    with pytest.raises(ValueError, match="at least twice"):
        learned.both(q, k[..., :6], torch.empty(1, 2, 3, 6))


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_formula_in_every_order_of_memory(order, type, layout):
    for n, (d, pairs), rows, heads in itertools.product([0, 1, 7], [(8, 4), (10, 2), (7, 3), (2, 1)], [1, 2], [1, 3]):
        rotation = Rotation(*waves(rows, heads, n, pairs), layout)
        x = ORDERS[order](2, 3, n, d).to(type)
        before = x.clone()
        exact = looped(x.double(), rotation.cos, rotation.sin, layout)
        assert_as_close(rotation(x), looped(x, rotation.cos, rotation.sin, layout), exact)
        assert x.equal(before)


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS)
def test_its_gradients_are_those_of_finite_differences_twice(order, layout):
    rotation = Rotation(*waves(1, 1, 3, 2), layout)
    x = ORDERS[order](1, 2, 3, 6).contiguous().requires_grad_()
    assert torch.autograd.gradcheck(rotation, (x,))
    assert torch.autograd.gradgradcheck(rotation, (x,))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_way_back_turns_back(layout, monkeypatch):
    angles, x = torch.randn(1, 5, 3, dtype=torch.float64), torch.randn(2, 2, 5, 6, dtype=torch.float64)
    x.requires_grad_()
    rotation = Rotation.by(angles, layout)
    out = rotation(x)
    (slope,) = torch.autograd.grad(out, x, out.detach())
    assert torch.allclose(slope, x, rtol=0, atol=1e-12)
    # a way back that turns forward is noticed
    turned = Rotation.apply
    monkeypatch.setattr(Rotation, "apply", lambda self, x, back: turned(self, x, False))
    with pytest.raises(AssertionError):
        assert torch.allclose(torch.autograd.grad(rotation(x), x, out.detach())[0], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_angles_that_are_learned_get_their_gradient(layout):
    cos, sin = (wave.requires_grad_() for wave in waves(1, 2, 3, 2))
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, cos, sin: Rotation(cos, sin, layout)(x), (x, cos, sin))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["heads first", "tokens first"])
def test_a_nan_stays_with_its_token(order, layout):
    x = ORDERS[order](2, 3, 5, 8)
    x[1, :, 2] = torch.tensor(float("nan"))
    x[0, :, 4, 3] = torch.tensor(float("inf"))
    out = Rotation(*waves(1, 1, 5, 4), layout)(x)
    spoilt = torch.zeros(2, 5, dtype=torch.bool)
    spoilt[1, 2] = spoilt[0, 4] = True
    assert torch.equal(~out.isfinite().all(-1).all(1), spoilt)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_token_turns_alike_alone_and_among_others(layout):
    for type in (torch.float32, torch.bfloat16):
        x = torch.randn(5, 7, 3, 10).to(type).transpose(1, 2)
        rotation = Rotation.by(torch.randn(1, 7, 5, dtype=torch.float64), layout)
        alone = Rotation(rotation.cos[:, :, 4:5], rotation.sin[:, :, 4:5], layout)
        assert rotation(x)[2:3, :, 4:5].equal(alone(x[2:3, :, 4:5]))


@pytest.mark.parametrize(
    "scheme",
    [
        Rope(head_width=8),
        Xpos(head_width=8),
        Axial(head_width=8, layout="half_per_axis"),
        Sum(Rope(head_width=8), Alibi(heads=4)),
        HeadGroups(Rope(head_width=8), Rope(head_width=8, layout="interleaved"), heads=4),
    ],
    ids=["rope", "xpos", "axial", "sum", "heads"],
)
def test_cached_encoders_agree_with_the_hooks(scheme):
    where = Geometry.grid(2, 3) if 2 in scheme.axes else Geometry.causal(6)
    q, k = torch.randn(2, 4, 6, 8, dtype=torch.float64), torch.randn(2, 2, 6, 8, dtype=torch.float64)
    at = scheme.at(where)
    for _ in range(2):
        marked = at.encode(q, k).pair
        assert marked[0].equal(scheme.encode_query(q, where.q_pos))
        assert marked[1].equal(scheme.encode_key(k, where.q_pos))
    assert not marked[0].equal(q)


def test_angles_are_computed_once_for_all_layers(monkeypatch):
    made = []
    by = module.Rotation.by
    monkeypatch.setattr(module.Rotation, "by", lambda *given: made.append(given) or by(*given))
    model = Decoder(Shape(vocabulary=9, width=32, layers=4, heads=4, scheme="rope"))
    model(torch.arange(8)[None])
    assert len(made) == 1


def test_more_pairs_than_the_head_has_are_refused():
    with pytest.raises(
        ValueError, match="twice the number of rotated pairs; got 6 channels for 4 pairs; build the scheme"
    ):
        Rotation(*waves(1, 1, 3, 4), "half")(torch.zeros(1, 1, 3, 6))


def test_a_step_of_training_leaves_what_was_made_to_be_freed():
    made = weakref.ref(rotation := Rotation(*waves(1, 1, 3, 2), "half"))
    out = rotation(torch.randn(1, 2, 3, 4, requires_grad=True))
    out.sum().backward()
    del rotation, out
    assert made() is None
