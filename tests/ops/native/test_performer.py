"""Attention by random features in C++ is the mixer's plain form, forward and backward."""

from itertools import repeat

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.performer import Performer
from ordinate.ops.native import build, performer, scan
from ordinate.schemes import NoPosition
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("performer")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def calls(_compiler, monkeypatch):
    """Each job that C++ was given: it is switched on, however small the tensors."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], performer._run
    monkeypatch.setattr(performer, "_run", lambda *given: made.append(given) or run(*given))
    return made


def draw(tokens, heads, width, loud=1.5):
    """Queries, keys and values as projections leave them; the level of keys rises, and falls again."""
    q, k, v = (torch.randn(2, tokens, heads, width).transpose(1, 2) for _ in range(3))
    return q, loud * k * torch.linspace(0.2, 3, tokens).sin()[:, None], v


def results(mixer, given, real, dtype, split):
    """What is read, piece by piece, and the gradients of all that goes in."""
    mixer, leaves = mixer.to(dtype), [x.to(dtype).requires_grad_() for x in given]
    masks = repeat(None) if real is None else real.split(split, 1)
    state, read = None, []
    for (q, k, v), mask in zip(zip(*(x.split(split, 2) for x in leaves), strict=True), masks, strict=False):
        y, state = mixer._mean(q, k, v, True, mask, state)
        read.append(y)
    y = torch.cat(read, 2)
    total = (y * torch.linspace(-1, 1, y.shape[3], dtype=dtype)).square().sum() + state.values.sin().sum()
    return [y, state.values, state.peak, *torch.autograd.grad(total, leaves)]


def exact(mixer, given, real):
    """The plain form, which is the one for float64."""
    return results(mixer, given, real, torch.float64, given[0].shape[2])


@pytest.mark.parametrize("kernel", ["hyperbolic", "positive"])
@pytest.mark.parametrize(
    ("tokens", "heads", "width", "features", "split", "padded"),
    [
        (2, 1, 4, 2, 9, 0),
        (64, 2, 8, 18, 99, 0),
        (70, 2, 20, 30, 41, 9),
        (150, 1, 64, None, 65, 70),
        (129, 1, 16, 96, 1, 0),
    ],
)
def test_it_is_the_plain_form(tokens, heads, width, features, split, padded, kernel, calls):
    mixer = Performer(width=heads * width, heads=heads, kernel=kernel, features=features)
    given, real = draw(tokens, heads, width), None
    if padded:
        real = torch.ones(2, tokens, dtype=torch.bool)
        real[0, :padded] = False
    ours = results(mixer, given, real, torch.float32, split)
    assert calls
    for place, (one, other) in enumerate(zip(ours, exact(mixer, given, real), strict=True)):
        assert_max_close(one, other, 2e-5, f"result {place}")


def test_a_mutant_without_opposite_directions_is_noticed(monkeypatch):
    mixer, given = Performer(width=16, heads=2), draw(70, 2, 8)
    run = performer._run
    monkeypatch.setattr(
        performer, "_run", lambda back, scale, mirrored, x: run(back, scale, mirrored and not back, x)
    )
    ours, plain = results(mixer, given, None, torch.float32, 99), exact(mixer, given, None)
    assert_max_close(ours[0], plain[0], 2e-5, "what is read")
    assert (ours[3] - plain[3]).abs().max() > 0.1


def test_a_late_key_leaks_nothing_and_no_gradient(calls):
    mixer, at = Performer(width=16, heads=2), NoPosition().at(Geometry.causal(70))
    x = torch.randn(1, 70, 16, requires_grad=True)
    calm = mixer(x, at)[0]
    loud = mixer(torch.cat([x[:, :-1], 60 * x[:, -1:]], 1), at)[0]
    assert torch.equal(calm[:, :-1], loud[:, :-1])
    assert torch.isfinite(loud).all()
    (slope,) = torch.autograd.grad(calm[:, :40].sum(), x)
    assert (slope[:, 40:] == 0).all()
    assert (slope[:, :40] != 0).any()
    assert len(calls) == 3


def test_what_is_no_number_stays_none():
    mixer = Performer(width=16, heads=2)
    for place in range(3):
        given = draw(150, 2, 8)
        given[place][0, 0, 80, 3] = float("nan")
        y, _ = mixer._mean(*given, True, None, None)
        assert y[0, 0, 80].isnan().any()
        assert y[0, 0, :64].isfinite().all()
        assert y[1].isfinite().all()
        assert y[0, 0, -1].isnan().any() == (place > 0)


def test_a_query_that_sees_nothing_reads_nothing():
    mixer, given = Performer(width=16, heads=2), [x.requires_grad_() for x in draw(70, 2, 8)]
    y, state = mixer._mean(*given, True, torch.zeros(2, 70, dtype=torch.bool), None)
    assert (y == 0).all()
    assert (state.values == 0).all()
    assert all((slope == 0).all() for slope in torch.autograd.grad(y.sum(), given))


def test_two_threads_change_no_bit():
    mixer, given = Performer(width=32, heads=4), draw(70, 4, 8)
    alone = results(mixer, given, None, torch.float32, 99)
    try:
        torch.set_num_threads(2)
        together = results(mixer, given, None, torch.float32, 99)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_other_kernels_types_and_forms_go_without(calls):
    given = draw(9, 2, 8)
    Performer(width=16, heads=2, kernel="relu")._mean(*given, True, None, None)
    Performer(width=16, heads=2)._mean(*given, False, None, None)
    Performer(width=16, heads=2).double()._mean(*(x.double() for x in given), True, None, None)
    assert not calls
