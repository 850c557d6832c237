import os
import subprocess
import sys

import pytest
import torch

from ordinate.ops.native import blend, build, scan
from ordinate.ops.shift import bidirectional, interpolate_previous, last_token, relative_depth, token_shift
from ordinate.testing.assert_close import assert_max_close


def test_each_token_is_beside_the_one_before_it():
    x = torch.arange(24.0).view(2, 4, 3)
    before, last = token_shift(x, None)
    assert torch.equal(before[:, 1:], x[:, :-1])
    assert (before[:, 0] == 0).all()
    assert torch.equal(last, x[:, -1])
    before, last = token_shift(x[:, 3:], x[:, 2])
    assert torch.equal(before[:, 0], x[:, 2])
    before, last = token_shift(x[:, :0], x[:, 2])
    assert before.shape == (2, 0, 3)
    assert torch.equal(last, x[:, 2])


def test_what_another_batch_left_is_refused(untyped):
    with pytest.raises(
        ValueError,
        match="recurrent state must have the batch size of the new tokens; got 1 and 2; use the state with the batch",
    ):
        token_shift(torch.zeros(2, 4, 3), torch.zeros(1, 3))


@pytest.fixture
def calls(monkeypatch):
    """Each job that C++ was given: it is switched on, however small the tensors."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("blend") is not None:
        pytest.skip(build.unavailable_reason("blend"))
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], blend._run
    monkeypatch.setattr(blend, "_run", lambda *given, **named: made.append(given) or run(*given, **named))
    return made


def blends(x, last, shares, *extra):
    """By the formula."""
    before = torch.cat([last[:, None], x[:, :-1]], 1)
    own = [share + more for share, more in zip(shares, extra, strict=True)] if extra else shares
    return tuple((1 - share) * x + share * before for share in own)


def results(function, inputs, dtype):
    leaves = [y.detach().to(dtype).requires_grad_() for y in inputs]
    out = function(*leaves)
    total = sum((place + 1) * (y * y.detach().cos()).sum() for place, y in enumerate(out))
    return [*out, *torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(("tokens", "width", "ways"), [(1, 3, 1), (7, 20, 6), (128, 16, 2), (300, 33, 5)])
def test_blends_are_the_formula_in_cpp_and_without(tokens, width, ways, more, calls, monkeypatch):
    inputs = [torch.randn(2, tokens, width), torch.randn(2, width), torch.randn(ways, width)]
    inputs += [torch.randn(2, tokens, width) for _ in range(ways)] if more else []
    exact = results(blends, inputs, torch.float64)
    for place, (one, other) in enumerate(
        zip(results(interpolate_previous, inputs, torch.float32), exact, strict=True)
    ):
        assert_max_close(one, other, 5e-6, f"result {place}")
    assert len(calls) == 2
    for one, other in zip(results(interpolate_previous, inputs, torch.float64), exact, strict=True):
        torch.testing.assert_close(one, other)
    assert len(calls) == 2
    # a mutant: the way back begins one token late
    run = blend._run
    monkeypatch.setattr(
        blend, "_run", lambda back, given, *rest, **made: run(back, _late(*given, back), *rest, **made)
    )
    if tokens > 1:
        assert (results(interpolate_previous, inputs, torch.float32)[ways + 2] - exact[ways + 2]).abs().max() > 0.01


def _late(x, first, shares, back):
    return (torch.cat([first[:, None], x[:, :-1]], 1) if back else x), first, shares


def test_blends_in_pieces_and_on_two_threads_are_the_same(calls):
    x, shares = torch.randn(2, 300, 8), torch.randn(3, 8)
    whole = interpolate_previous(x, None, shares)
    begin, end = (
        interpolate_previous(x[:, :131], None, shares),
        interpolate_previous(x[:, 131:], last_token(x[:, :131], None), shares),
    )
    assert all(torch.equal(torch.cat(parts, 1), out) for *parts, out in zip(begin, end, whole, strict=True))
    alone = results(interpolate_previous, [x, x[:, 0], shares], torch.float32)
    try:
        torch.set_num_threads(2)
        together = results(interpolate_previous, [x, x[:, 0], shares], torch.float32)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert torch.equal(last_token(x[:, :0], x[:, 3]), x[:, 3])


def test_from_both_sides_a_reversed_text_gives_reversed_results():
    x = torch.randn(2, 5, 3)
    there, back = bidirectional(lambda x: x.cumsum(1), x, None), bidirectional(lambda x: x.cumsum(1), x.flip(1), None)
    torch.testing.assert_close(there.flip(1), back)
    torch.testing.assert_close(there, x.sum(1, keepdim=True) + x)


def test_padding_stays_before_a_text_in_both_directions():
    real = torch.tensor([[False, False, True, True, True], [True] * 5, [False] * 5])
    seen = []

    def read(x):
        seen.append(x)
        return x.cumsum(1)

    x = torch.randn(3, 5, 2).masked_fill(~real[..., None], 0)
    out = bidirectional(read, x, real)
    for turned in seen:
        assert (turned[~real] == 0).all()
    torch.testing.assert_close(out[0, 2:], bidirectional(lambda x: x.cumsum(1), x[:1, 2:], None)[0])


def test_the_depth_of_a_layer():
    assert relative_depth(0, 4) == (0, 1)
    assert relative_depth(3, 4) == (1, 0.25)
    # one layer only: the first of many
    assert relative_depth(0, 1) == (0, 1)
    with pytest.raises(ValueError, match="layer must be below layers; got 2 of 2; give"):
        relative_depth(2, 2)


@pytest.mark.extended
def test_all_that_read_so_compile_into_one_graph():
    program = """
import torch
from ordinate import Geometry
from ordinate.mixers.rwkv4 import Rwkv4
from ordinate.mixers.rwkv6 import Rwkv6
from ordinate.mixers.rwkv7 import Rwkv7
from ordinate.schemes import NoPosition

for mixer in (Rwkv4(width=16), Rwkv6(width=16, heads=2), Rwkv7(width=16, heads=2)):
    torch._dynamo.reset()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x, at = torch.randn(2, 20, 16, requires_grad=True), NoPosition().at(Geometry.causal(20))
    run = lambda x: mixer(x, at)[0]
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for out, other in zip((run(x), *torch.autograd.grad(run(x).sum(), x)),
                          (compiled(x), *torch.autograd.grad(compiled(x).sum(), x))):
        assert torch.allclose(out, other, atol=1e-5), type(mixer)
"""
    # without the check of types that the other tests run under, as a user has it
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
