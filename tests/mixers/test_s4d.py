"""S4D compared with the recurrence of the paper, token by token."""

import pytest
import torch
from torch.nn.functional import gelu, glu

from ordinate import Geometry
from ordinate.mixers.s4d import S4d
from ordinate.schemes import NoPosition
from ordinate.testing import assert_as_close

RULES, INITS = ("zoh", "bilinear"), ("lin", "inv", "legs", "real")


def mixed(mixer, x, where=None, state=None):
    where = Geometry.causal(x.shape[1]) if where is None else where
    return mixer(x, NoPosition().at(where), state)


def recurrence(mixer, x, rule, side=0):
    """Reference SSM, token by token: x <- factor x + gain u, y = 2 Re(c x) + skip u."""
    filter, step = mixer.filter, mixer.filter.log_step.exp()[:, None]
    a = torch.complex(-filter.log_decay.exp(), filter.turn)
    c = torch.view_as_complex(filter.c[side])
    if rule == "zoh":
        factor, gain = torch.exp(step * a), (torch.exp(step * a) - 1) / a
    else:
        factor, gain = (1 + step * a / 2) / (1 - step * a / 2), step / (1 - step * a / 2)
    memory, rows = torch.zeros(len(x), *a.shape, dtype=a.dtype), []
    for u in x.unbind(1):
        memory = factor * memory + gain * u[..., None]
        rows.append(2 * (c * memory).real.sum(2))
    return torch.stack(rows, 1)


def layer(mixer, y):
    return glu(gelu(y) @ mixer.out.weight.T + mixer.out.bias, -1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("init", INITS)
def test_it_is_the_recurrence_of_the_paper(init, rule):
    mixer = S4d(width=3, states=8, init=init, rule=rule).double()
    x = torch.randn(2, 67, 3, dtype=torch.float64, requires_grad=True)
    y, _ = mixed(mixer, x)
    expected = layer(mixer, recurrence(mixer, x, rule) + mixer.filter.skip * x)
    assert_as_close(y, expected, expected)
    slope, leaves = torch.randn_like(y), [x, *mixer.parameters()]
    slopes = [torch.autograd.grad(out, leaves, slope) for out in (y, expected)]
    for ours, other in zip(*slopes, strict=True):
        assert torch.allclose(ours, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mirrored", [True, False])
def test_both_directions_hear_the_future_one_token_shifted(mirrored):
    mixer = S4d(width=3, states=8, mirrored=mirrored).double()
    x = torch.randn(2, 41, 3, dtype=torch.float64)
    y, state = mixed(mixer, x, Geometry.full(41))
    back = recurrence(mixer, x.flip(1), "zoh", side=0 if mirrored else 1)
    future = torch.cat([torch.zeros(2, 1, 3, dtype=torch.float64), back[:, :-1]], 1).flip(1)
    expected = layer(mixer, recurrence(mixer, x, "zoh") + mixer.filter.skip * x + future)
    assert_as_close(y, expected, expected)
    assert state is None


@pytest.mark.parametrize("cut", [1, 31, 32, 33, 66])
def test_decoding_continues_from_the_state(cut):
    mixer, x = S4d(width=3, states=8).double(), torch.randn(2, 67, 3, dtype=torch.float64)
    whole, end = mixed(mixer, x)
    first, state = mixed(mixer, x[:, :cut])
    rest, after = mixed(mixer, x[:, cut:], Geometry.causal(67 - cut, cached=cut), state)
    assert torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-13)
    assert torch.allclose(after.x, end.x, atol=1e-12)


def test_a_changed_number_is_heard_at_once():
    mixer, x = S4d(width=3, states=8).eval(), torch.randn(1, 5, 3)
    before, _ = mixed(mixer, x)
    with torch.no_grad():
        mixer.filter.log_step += 1
    assert not torch.allclose(mixed(mixer, x)[0], before)


@pytest.mark.parametrize("tokens", [1, 33, 70])
def test_later_tokens_do_not_reach_earlier_ones(tokens):
    mixer, x = S4d(width=3, states=8), torch.randn(1, tokens, 3, requires_grad=True)
    y, _ = mixed(mixer, x)
    seen = tokens // 2
    (slope,) = torch.autograd.grad(y[:, seen].sum(), x)
    assert torch.equal(slope[:, seen + 1 :], torch.zeros(1, tokens - seen - 1, 3))
    assert slope[:, : seen + 1].abs().sum(2).min() > 0


def test_autocast_does_not_reach_the_filters():
    mixer, x = S4d(width=8), torch.randn(2, 300, 8)
    y, state = mixed(mixer, x)
    with torch.autocast("cpu", torch.bfloat16):
        narrow, same = mixed(mixer, x)
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(state.x, same.x)
    assert (narrow - y).abs().max() < 0.02 * y.abs().max()


def test_initial_steps_are_within_the_given_range():
    step = S4d(width=500, steps=(0.01, 0.02)).filter.log_step.exp()
    assert 0.01 <= step.min() < 0.011
    assert 0.019 < step.max() <= 0.02


def test_dropout_acts_in_training_only():
    mixer, x = S4d(width=8, dropout=0.5), torch.randn(2, 9, 8)
    assert not torch.equal(mixed(mixer, x)[0], mixed(mixer, x)[0])
    mixer.eval()
    assert torch.equal(mixed(mixer, x)[0], mixed(mixer, x)[0])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"states": 7}, "states must be even and positive; got 7; give 64"),
        ({"states": 0}, "states must be even and positive; got 0"),
        ({"steps": (0.1, 0.01)}, r"steps must be two positive numbers in ascending order; got \[0.1, 0.01\]"),
        ({"init": "other"}, "option init of S4d must be"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        S4d(width=8, **options)


def test_numbers_for_a_hidden_future_are_refused():
    mixer = S4d(width=8, mirrored=False)
    with pytest.raises(ValueError, match="mirrored=False requires a bidirectional geometry; got a causal one"):
        mixed(mixer, torch.randn(1, 5, 8))


def test_a_memory_of_another_batch_is_refused():
    mixer = S4d(width=8)
    _, state = mixed(mixer, torch.randn(2, 5, 8))
    with pytest.raises(ValueError, match="state and new tokens need the same batch size; got 2 and 3 rows"):
        mixed(mixer, torch.randn(3, 1, 8), Geometry.causal(1, cached=5), state)
