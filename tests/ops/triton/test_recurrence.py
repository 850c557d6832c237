"""The route of linear attention with decay on GPUs; the kernels in a process of its own, which Triton interprets."""

import pytest
import torch

from ordinate.core.devices import as_if_on
from ordinate.ops import decay
from ordinate.ops.decay import decaying_linear_attention, read_after_update
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.ops.triton import proofs, recurrence
from tests.ops.triton.interpreter import installed, interpret, interpret_tests


@pytest.fixture
def given(monkeypatch):
    """Inputs of the rule of RWKV-6; nothing has been proved, and Triton can run."""
    monkeypatch.setattr(proofs, "unavailable_reason", lambda device: None)
    proofs.found().clear()
    q, k, v = torch.randn(3, 1, 2, 9, 4).unbind()
    yield q, k, v, -torch.rand(1, 2, 9, 4), torch.randn(2, 4), torch.randn(1, 2, 4, 4)
    proofs.found().clear()


def use(monkeypatch, formula):
    """Put a formula in the place of the operator; returns the list of its calls."""
    runs = []
    monkeypatch.setattr(recurrence, "recurrence", lambda plain, *x: runs.append(1) or formula(plain, *x))
    return runs


def test_what_agrees_is_proved_once_and_used(given, monkeypatch):
    runs = use(monkeypatch, lambda plain, *x: plain(*x))
    usual = decaying_linear_attention(*given)
    assert not runs
    with as_if_on("cuda"):
        for _ in range(3):
            torch.testing.assert_close(decaying_linear_attention(*given), usual)
    # the proof, and three calls
    assert len(runs) == 4


def crash(plain, *x):
    raise RuntimeError("ptxas: out of registers\nsecond line")


def louder(plain, *x):
    y, last = plain(*x)
    return y * 1.01, last


def another_end(plain, *x):
    y, last = plain(*x)
    return y, last * 1.01


def without_gradient_of_decays(plain, q, k, v, w, bonus, start):
    # of the right value
    return plain(q, k, v, w.detach() + 0 * w, bonus, start)


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (louder, "differs from the plain formula in a small case: output, off by"),
        (another_end, "small case: last state, off by"),
        (without_gradient_of_decays, "small case: gradient of w, off by"),
        (crash, "failed in a small case: RuntimeError: ptxas: out of registers$"),
    ],
)
def test_what_does_not_agree_is_refused_with_one_warning(formula, says, given, monkeypatch):
    use(monkeypatch, formula)
    usual = decay._plain(*given)
    with as_if_on("cuda"):
        with pytest.warns(
            RuntimeWarning, match=f"Triton recurrence is not used for 4 .* a decay for each channel: .*{says}"
        ):
            made = decaying_linear_attention(*given)
        torch.testing.assert_close(decaying_linear_attention(*given), made)
    torch.testing.assert_close(made, usual)


def test_while_a_graph_is_captured_or_traced_only_earlier_proofs_count(given, monkeypatch):
    use(monkeypatch, lambda plain, *x: plain(*x))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with as_if_on("cuda"):
        proofs._warned_of().clear()
        with pytest.warns(
            RuntimeWarning, match="the capture of a CUDA graph leaves out the Triton recurrence, .*; compute one step"
        ):
            assert "has not been tested" in recurrence.unusable_reason(decay._plain, *given)
        # one warning for each operator
        assert "has not been tested" in recurrence.unusable_reason(decay._plain, *given)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        proofs._warned_of().clear()
        with pytest.warns(RuntimeWarning, match="torch.compile leaves out the Triton recurrence"):
            assert "has not been tested" in recurrence.unusable_reason(decay._plain, *given)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        assert recurrence.unusable_reason(decay._plain, *given) is None
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert recurrence.unusable_reason(decay._plain, *given) is None


def test_other_inputs_are_refused_with_a_reason(given):
    q, k, v, w, bonus, start = given

    def reason(*x):
        return recurrence.unusable_reason(decay._plain, *x)

    assert "only tensors on GPUs" in reason(*given)
    with as_if_on("cuda"):
        assert "float64 is not supported" in reason(*(x.double() for x in given))
        assert "several dtypes" in reason(q, k, v, w, bonus, start.double())
        assert "a tensor is empty" in reason(*(x[:, :, :0] for x in (q, k, v, w)), bonus, start)


def test_what_does_not_fit_is_refused(given, untyped):
    q, k, v, w, _, start = given
    with pytest.raises(ValueError, match="w must have the batch, tokens and heads"):
        read_after_update(q, k, v, w[:, :, 1:], start)
    with pytest.raises(ValueError, match="start must have the batch, tokens and heads"):
        read_after_update(q, k, v, w, start[:, :, 1:])
    with as_if_on("cuda"), pytest.raises(ValueError, match="logs must have the batch, tokens and heads"):
        scalar_decay_attention(q, k, v, w[:, :, 1:, 0], start)


@installed
@pytest.mark.extended
def test_the_kernels_agree_with_the_loop_over_tokens():
    # the whole file, mutants included, takes some ten minutes
    interpret_tests("recurrence_interpreted.py", "-m", "not extended")


COMPILED = """
import torch
from ordinate.core.devices import as_if_on
from ordinate.ops.decay import read_after_update
from ordinate.ops.triton import proofs

inputs = [*torch.randn(3, 1, 2, 40, 16).unbind(), -torch.rand(1, 2, 40, 16), torch.randn(1, 2, 16, 16)]
inputs = [x.requires_grad_() for x in inputs]

def results(function):
    y, last = function(*inputs)
    return y, last, *torch.autograd.grad(y.square().sum() + last.sum(), inputs)

with as_if_on("cuda"):
    usual = results(read_after_update)
    assert list(proofs.found().values()) == [None]
    graphs = []
    def backend(graph, example):
        graphs.append(str(graph.code))
        return graph
    compiled = torch.compile(read_after_update, backend="aot_eager", fullgraph=True)
    assert all(one.equal(other) for one, other in zip(usual, results(compiled), strict=True))
    torch.compile(read_after_update, backend=backend, fullgraph=True)(*(x.detach() for x in inputs))
    assert "triton_recurrence" in graphs[0]
"""


@installed
@pytest.mark.extended
def test_torch_compile_takes_it_whole_forward_and_backward():
    # the type checks of tests cannot be compiled
    interpret("-c", COMPILED)
