import pytest
import torch

from ordinate.ops.correction import MAX_LOG_DECAY, state_update
from ordinate.ops.native import build, scan
from ordinate.ops.native import correction as native
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("correction")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def calls(_compiler, monkeypatch):
    """Each job that C++ was given: it is switched on, however small the tensors."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], native._run
    monkeypatch.setattr(native, "_run", lambda *given: made.append(given) or run(*given))
    return made


def by_the_formula(k, slow, rate, decay, usual, erased, replaced):
    """One head after another, one token after another."""
    made = []
    for h, (w_0, a_0, c_k, c_a) in enumerate(
        zip(*(x.chunk(k.shape[1]) for x in (decay, usual, erased, replaced)), strict=True)
    ):
        w = -MAX_LOG_DECAY / (1 + torch.exp(-(w_0 + slow[:, h])))
        a = 1 / (1 + torch.exp(-(a_0 + rate[:, h])))
        u = k[:, h] * c_k
        c = u / u.square().sum(-1, keepdim=True).sqrt()
        made.append((w, k[:, h] * (1 + (a - 1) * c_a), -c, c * a))
    return tuple(torch.stack(heads, 1) for heads in zip(*made, strict=True))


def draw(tokens, heads, width):
    """As the mixer has them: heads of a token side by side."""
    texts = [2 * torch.randn(2, tokens, heads, width).transpose(1, 2) for _ in range(3)]
    return [*texts, *(torch.randn(heads * width) for _ in range(4))]


def results(function, inputs, dtype):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    made = function(*leaves)
    asked = sum(
        ((x * torch.linspace(-1, 2, x.shape[2], dtype=dtype)[:, None] + i).square().sum()) for i, x in enumerate(made)
    )
    return [*made, *torch.autograd.grad(asked, leaves)]


SIZES = [(1, 1, 3), (7, 3, 20), (130, 2, 64), (260, 1, 17)]


@pytest.mark.parametrize("sizes", SIZES)
def test_it_is_the_formula(sizes):
    inputs = draw(*sizes)
    for one, other in zip(*(results(f, inputs, torch.float64) for f in (state_update, by_the_formula)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sizes", SIZES)
def test_in_cpp_it_is_the_formula(sizes, calls):
    inputs = draw(*sizes)
    found, exact = results(state_update, inputs, torch.float32), results(by_the_formula, inputs, torch.float64)
    assert len(calls) == 2
    for place, (one, other) in enumerate(zip(found, exact, strict=True)):
        assert_max_close(one, other, 5e-6, f"result {place}")


def test_two_threads_change_no_bit(calls):
    inputs = draw(300, 2, 16)
    alone = results(state_update, inputs, torch.float32)
    try:
        torch.set_num_threads(2)
        together = results(state_update, inputs, torch.float32)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_mutant_with_the_gradients_of_another_rate_is_noticed(calls, monkeypatch):
    run = native._run
    monkeypatch.setattr(native, "_run", lambda back, x: run(back, x | ({"rate": x["rate"] + 1} if back else {})))
    inputs = draw(9, 2, 8)
    found, exact = results(state_update, inputs, torch.float32), results(by_the_formula, inputs, torch.float64)
    assert_max_close(found[0], exact[0], 5e-6, "the result")
    with pytest.raises(AssertionError, match="gradient"):
        assert_max_close(found[6], exact[6], 5e-6, "gradient")


def test_a_key_of_zeros_reads_and_moves_nothing(calls):
    inputs = draw(5, 2, 8)
    inputs[0][0, 1, 3] = 0
    plain = results(state_update, inputs, torch.float64)
    for place, (one, other) in enumerate(zip(results(state_update, inputs, torch.float32), plain, strict=True)):
        assert_max_close(one, other, 5e-6, f"result {place}")
    assert (plain[2][0, 1, 3] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_key_of_zeros_has_finite_second_derivatives(dtype, calls):
    leaves = [x.to(dtype) for x in draw(5, 2, 8)]
    leaves[0][0, 1, 3] = 0
    leaves = [x.requires_grad_() for x in leaves]
    made = sum(x.square().sum() for x in state_update(*leaves))
    first = torch.autograd.grad(made, leaves, create_graph=True)
    for second in torch.autograd.grad(sum(x.sum() for x in first), leaves):
        assert second.isfinite().all()


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_what_is_certain_is_no_nan(logit, calls):
    k, slow, rate, *channels = draw(5, 2, 8)
    slow.fill_(logit), rate.fill_(logit)
    assert all(x.isfinite().all() for x in results(state_update, [k, slow, rate, *channels], torch.float32))


def test_what_is_no_number_spoils_its_head_alone(calls):
    k, *rest = draw(5, 2, 8)
    k[0, 1, 3, 2] = float("nan")
    for made in state_update(k, *rest)[2:]:
        assert made[0, 1, 3].isnan().all()
        assert made.isnan().sum() == 8
