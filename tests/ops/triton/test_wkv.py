"""The route of the WKV operator on GPUs; the kernels in a process of its own, which Triton interprets."""

import pytest
import torch

from ordinate.core.devices import as_if_on
from ordinate.ops import wkv as ops
from ordinate.ops.triton import proofs, wkv
from tests.ops.test_wkv import draw
from tests.ops.triton.interpreter import installed, interpret, interpret_tests


@pytest.fixture(autouse=True)
def _unproved(monkeypatch):
    """Nothing has been proved, and Triton can run."""
    monkeypatch.setattr(proofs, "unavailable_reason", lambda device: None)
    proofs.found().clear()
    yield
    proofs.found().clear()


def test_what_agrees_is_proved_once_and_used(monkeypatch):
    runs, given = [], draw(9)
    monkeypatch.setattr(wkv, "wkv", lambda plain, *x: runs.append(1) or plain(*x))
    usual = ops.wkv(*given)
    assert not runs
    with as_if_on("cuda"):
        for _ in range(3):
            torch.testing.assert_close(ops.wkv(*given)[0], usual[0])
    # the proof, and three calls
    assert len(runs) == 4


def louder(plain, *x):
    y, end = plain(*x)
    return y * 1.01, end


def another_gradient(plain, k, v, decay, bonus, start):
    return plain(k, v, decay, bonus.detach() + 0 * bonus, start)


def crash(plain, *x):
    raise RuntimeError("ptxas: out of registers\nsecond line")


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (louder, "differs from the plain formula in a small case: means, off by"),
        (another_gradient, "small case: gradient of the bonus, off by"),
        (crash, "failed in a small case: RuntimeError: ptxas: out of registers$"),
    ],
)
def test_what_does_not_agree_is_refused_with_one_warning(formula, says, monkeypatch):
    monkeypatch.setattr(wkv, "wkv", formula)
    given = draw(9)
    with as_if_on("cuda"):
        with pytest.warns(RuntimeWarning, match=f"the Triton WKV is not used for float32: .*{says}"):
            made, _ = ops.wkv(*given)
        torch.testing.assert_close(ops.wkv(*given)[0], made)
    torch.testing.assert_close(made, ops._plain(*given)[0])


def test_other_inputs_are_refused_with_a_reason():
    k, v, decay, bonus, start = draw(9)
    assert "only tensors on GPUs" in wkv.unusable_reason(ops._plain, k, v, decay, bonus, start)
    with as_if_on("cuda"):
        wide = [x.double() for x in (k, v, decay, bonus, start)]
        assert "float64 is not supported" in wkv.unusable_reason(ops._plain, *wide)
        assert "several dtypes" in wkv.unusable_reason(ops._plain, k, v, decay, bonus, start.double())
        assert "a tensor is empty" in wkv.unusable_reason(ops._plain, k[:, :0], v[:, :0], decay, bonus, start)


@installed
@pytest.mark.extended
def test_the_kernels_agree_with_the_loop_over_tokens():
    interpret_tests("wkv_interpreted.py")


COMPILED = """
import torch
from ordinate.core.devices import as_if_on
from ordinate.ops.wkv import wkv
from ordinate.ops.triton import proofs

k, v, decay, bonus = torch.randn(1, 9, 5), torch.randn(1, 9, 5), -torch.rand(5), torch.rand(5)
inputs = [x.requires_grad_() for x in (k, v, decay, bonus, torch.rand(1, 3, 5))]

def results(function):
    y, last = function(*inputs)
    return y, last, *torch.autograd.grad(y.square().sum() + last[:, :2].sum(), inputs)

with as_if_on("cuda"):
    usual = results(wkv)
    assert list(proofs.found().values()) == [None]
    compiled = torch.compile(wkv, backend="aot_eager", fullgraph=True)
    assert all(one.equal(other) for one, other in zip(usual, results(compiled), strict=True))
    graphs = []
    torch.compile(wkv, backend=lambda graph, example: graphs.append(graph.code) or graph, fullgraph=True)(
        *(x.detach() for x in inputs)
    )
    assert "triton_wkv" in graphs[0]
"""


@installed
@pytest.mark.extended
def test_torch_compile_takes_it_whole_forward_and_backward():
    # the type checks of tests cannot be compiled
    interpret("-c", COMPILED)
