import math
from itertools import pairwise

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.performer import RELU_FLOOR, Performer
from ordinate.ops.random_features import orthogonal_directions
from ordinate.schemes import NoPosition, Rope


def features(kernel, x, directions):
    """Random features as in the paper, without normalisation, in float64."""
    products, half = x @ directions.double().T, x.square().sum(-1, keepdim=True) / 2
    if kernel == "relu":
        return products.clamp(min=0) + RELU_FLOOR
    both = torch.cat([products, -products], -1) if kernel == "hyperbolic" else products
    return (both - half).exp()


def by_the_formula(mixer, x, at):
    """Reference attention weights (queries x keys)."""
    parts = (x @ mixer.project.weight.T).split(mixer.widths, -1)
    q, k, v = (part.unflatten(-1, (-1, mixer.head_width)).transpose(1, 2) for part in parts)
    q, k = at.encode(q, k).pair
    if mixer.kernel != "relu":
        q, k = (mark * mixer.head_width**-0.25 for mark in (q, k))
    q, k = (features(mixer.kernel, mark, mixer.directions) for mark in (q, k))
    k, v = (key.repeat_interleave(q.shape[1] // key.shape[1], 1) for key in (k, v))
    weights = (q @ k.mT) * at.where.visible[:, None]
    y = weights @ v / weights.sum(-1, keepdim=True)
    return y.transpose(1, 2).flatten(2) @ mixer.out.weight.T


def outputs_and_gradients(compute, mixer, x, at):
    y = compute(x, at)
    trained = [parameter for parameter in mixer.parameters() if parameter.requires_grad]
    return y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *trained])


@pytest.mark.covering(1)
@pytest.mark.parametrize("kernel", ["hyperbolic", "positive", "relu"])
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=4)], ids=["none", "rope"])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize(
    "where", [Geometry.causal(1), Geometry.causal(67), Geometry.full(1), Geometry.full(9)], ids=lambda x: str(x.shape)
)
def test_it_is_the_formula_of_pairs(where, kv_heads, scheme, kernel):
    mixer = Performer(width=8, heads=2, kv_heads=kv_heads, kernel=kernel).double()
    x = 3 * torch.randn(2, where.shape[0], 8, dtype=torch.float64)
    at = scheme.at(where)
    ours = outputs_and_gradients(lambda *given: mixer(*given)[0], mixer, x.requires_grad_(), at)
    plain = outputs_and_gradients(lambda *given: by_the_formula(mixer, *given), mixer, x, at)
    for out, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("kernel", ["hyperbolic", "positive", "relu"])
@pytest.mark.parametrize("cut", [1, 64, 69])
def test_piece_by_piece_is_the_same_as_at_once(cut, kernel):
    mixer, scheme = Performer(width=8, heads=2, kv_heads=1, kernel=kernel).double(), Rope(head_width=4)
    # a later key far above all before it moves the peak
    x = torch.randn(2, 70, 8, dtype=torch.float64) * torch.linspace(1, 9, 70, dtype=torch.float64)[:, None]
    whole, _ = mixer(x, scheme.at(Geometry.causal(70)))
    first, state = mixer(x[:, :cut], scheme.at(Geometry.causal(cut)))
    rest, _ = mixer(x[:, cut:], scheme.at(Geometry.causal(70 - cut, cached=cut)), state)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, atol=1e-12, rtol=1e-12)


def error(mixer, x):
    """Root mean square error compared with softmax attention, before the output projection."""
    q, k, v = (part.unflatten(-1, (1, -1)).transpose(1, 2) for part in x.split(x.shape[2] // 3, -1))
    exact = torch.softmax(q @ k.mT * q.shape[3] ** -0.5, -1) @ v
    y, _ = mixer._mean(q, k, v, False, None, None)
    return (y - exact).square().mean()


def slope_of_error(kernel, counts, draws=30):
    """Log-log slope of the error as a function of the number of features."""
    generator = torch.Generator().manual_seed(0)
    # large scores hide the law: features of e^large are spread too widely
    x = 0.3 * torch.randn(4, 64, 48, generator=generator, dtype=torch.float64)
    errors = []
    for count in counts:
        mixers = [Performer(width=16, heads=1, kernel=kernel, features=count).double() for _ in range(draws)]
        errors.append(torch.stack([error(mixer, x) for mixer in mixers]).mean().sqrt())
    logs = torch.stack([torch.tensor(counts).double().log(), torch.stack(errors).log()])
    logs = logs - logs.mean(1, keepdim=True)
    return (logs[0] * logs[1]).sum().item() / logs[0].square().sum().item()


@pytest.mark.extended
@pytest.mark.parametrize("kernel", ["hyperbolic", "positive"])
def test_the_error_falls_as_one_over_the_root_of_the_features(kernel):
    assert -0.6 <= slope_of_error(kernel, [32, 128, 512]) <= -0.4


@pytest.mark.extended
def test_a_factor_straight_from_lapack_does_not_follow_the_law(monkeypatch):
    def leaning(count, width, generator):
        drawn = torch.randn(-(-count // width), width, width, generator=generator, dtype=torch.float64)
        lengths = torch.randn(drawn.shape, generator=generator, dtype=torch.float64).norm(dim=2)
        return (torch.linalg.qr(drawn).Q.mT * lengths[..., None]).flatten(0, 1)[:count]

    monkeypatch.setattr("ordinate.mixers.performer.orthogonal_directions", leaning)
    assert slope_of_error("positive", [512, 2048, 8192], draws=8) > -0.4


def test_opposite_directions_halve_the_error():
    x = 0.3 * torch.randn(4, 64, 48, dtype=torch.float64)
    errors = {
        kernel: sum(
            error(Performer(width=16, heads=1, kernel=kernel, features=256).double(), x).item() for _ in range(20)
        )
        for kernel in ("hyperbolic", "positive")
    }
    assert math.sqrt(errors["hyperbolic"] / errors["positive"]) < 0.7


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    rows = orthogonal_directions(20_002, 4, torch.Generator().manual_seed(0))
    assert rows.shape == (20_002, 4)
    assert torch.allclose((rows[:4] @ rows[:4].T).fill_diagonal_(0), torch.zeros(4, 4).double(), atol=1e-12)
    assert torch.allclose(rows.T @ rows / len(rows), torch.eye(4).double(), atol=0.05)
    assert torch.allclose(rows.mean(0), torch.zeros(4).double(), atol=0.05)


def test_a_late_key_leaks_nothing_into_what_came_before():
    mixer, at = Performer(width=8, heads=2), NoPosition().at(Geometry.causal(70))
    x = torch.randn(1, 70, 8)
    with torch.no_grad():
        calm = mixer(x, at)[0]
        loud = mixer(torch.cat([x[:, :-1], 60 * x[:, -1:]], 1), at)[0]
    assert torch.equal(calm[:, :-1], loud[:, :-1])
    assert torch.isfinite(loud).all()


def test_new_directions_are_drawn_after_so_many_passes_of_training():
    mixer, at, x = Performer(width=8, heads=2, redraw=2), NoPosition().at(Geometry.full(3)), torch.randn(1, 3, 8)
    found = []
    for _ in range(5):
        mixer(x, at)
        found.append(mixer.directions.clone())
    assert [torch.equal(a, b) for a, b in pairwise(found)] == [True, False, True, False]
    mixer.eval()
    for _ in range(3):
        mixer(x, at)
    assert torch.equal(found[-1], mixer.directions)
    assert mixer.passes == 5


def test_a_loaded_mixer_draws_what_the_saved_one_would_have():
    at, x = NoPosition().at(Geometry.full(3)), torch.randn(1, 3, 8)
    one, other = (Performer(width=8, heads=2, redraw=3) for _ in range(2))
    for _ in range(2):
        one(x, at)
    other.load_state_dict(one.state_dict())
    for _ in range(3):
        one(x, at)
        other(x, at)
        assert torch.equal(one.directions, other.directions)


def test_it_does_not_redraw_between_the_pieces_of_a_text():
    mixer, at, x = Performer(width=8, heads=2, redraw=1), NoPosition(), torch.randn(1, 4, 8)
    _, state = mixer(x[:, :2], at.at(Geometry.causal(2)))
    kept = mixer.directions.clone()
    mixer(x[:, 2:], at.at(Geometry.causal(2, cached=2)), state)
    assert torch.equal(kept, mixer.directions)


def test_directions_are_not_trained():
    mixer = Performer(width=8, heads=2)
    assert [name for name, parameter in mixer.named_parameters() if not parameter.requires_grad] == ["directions"]


@pytest.mark.parametrize(("kernel", "expected"), [("hyperbolic", 128), ("positive", 256), ("relu", 256)])
def test_the_usual_number_of_features_is_whole_blocks(kernel, expected):
    assert Performer(width=128, heads=2, kernel=kernel).features == expected


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"features": 7}, "hyperbolic features come in pairs; got 7; give an even number"),
        ({"features": 0}, "features must be above zero"),
        ({"redraw": 0}, "redraw must be above zero"),
        ({"kernel": "cosine"}, r"option kernel of Performer must be .*; got 'cosine'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Performer(width=8, heads=2, **options)


def exact_rows(mixer, q, k, v, causal):
    """The formula in float64, in logarithms."""
    logs = mixer._logs(q.double())[:, :, :, None] + mixer._logs(k.double())[:, :, None]
    weights = logs.logsumexp(-1)
    if causal:
        weights = weights.masked_fill(torch.ones(weights.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
    return weights.softmax(-1) @ v.double()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("loud", [1.0, 10.0, 60.0])
def test_large_queries_and_keys_give_finite_results_and_gradients(loud, causal):
    mixer = Performer(width=16, heads=2).eval()
    q, k, v = (
        x.requires_grad_()
        for x in (loud * torch.randn(1, 2, 40, 8), loud * torch.randn(1, 2, 40, 8), torch.randn(1, 2, 40, 8))
    )
    out, _ = mixer._mean(q, k, v, causal, None, None)
    exact = exact_rows(mixer, q, k, v, causal)
    torch.testing.assert_close(out.double(), exact, rtol=1e-2, atol=1e-3 * loud)
    for slope in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert slope.isfinite().all()


@pytest.mark.parametrize("size", [30.0, 200.0])
def test_one_large_key_does_not_erase_the_rows_after_it(size):
    mixer = Performer(width=16, heads=2).eval()
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    k[:, :, 5] = size * mixer.directions[0] / mixer.directions[0].norm()
    out, state = mixer._mean(q[:, :, :20], k[:, :, :20], v[:, :, :20], True, None, None)
    rest, _ = mixer._mean(q[:, :, 20:], k[:, :, 20:], v[:, :, 20:], True, None, state)
    out = torch.cat([out, rest], 2)
    torch.testing.assert_close(out.double(), exact_rows(mixer, q, k, v, True), rtol=1e-3, atol=1e-3)


def test_the_form_with_a_peak_for_each_feature_is_the_same_where_neither_underflows():
    mixer = Performer(width=16, heads=2).double().eval()
    q, k, v = torch.randn(3, 2, 2, 40, 8, dtype=torch.float64)
    real = torch.arange(40) >= torch.tensor([[0], [7]])
    for causal in (True, False):
        lowest = torch.full((2, 2, 1), torch.finfo(torch.float64).min, dtype=torch.float64)
        start = type(mixer._mean(q, k, v, True, None, None)[1])(q.new_zeros(2, 2, mixer.features, 9), lowest)
        fast, _ = mixer._mean(q, k, v, causal, real, None)
        slow, _ = mixer._by_peaks(q, k, v, causal, real, start)
        seen = real[:, None, :, None].expand_as(fast)
        torch.testing.assert_close(slow[seen], fast[seen])
