"""The route of the scan over chunks on GPUs; the kernel in a process of its own, which Triton interprets."""

import pytest
import torch

from ordinate.core.devices import as_if_on
from ordinate.ops import decay
from ordinate.ops.decay import scan_chunks
from ordinate.ops.triton import chunk_scan, proofs
from tests.ops.triton.interpreter import installed, interpret, interpret_tests


@pytest.fixture(autouse=True)
def _unproved(monkeypatch):
    """Nothing has been proved, and Triton can run."""
    monkeypatch.setattr(proofs, "unavailable_reason", lambda device: None)
    proofs.found().clear()
    yield
    proofs.found().clear()


def draw(width=8, depth=6):
    return torch.randn(2, 3, width, depth), torch.randn(2, 3, 4, width, width), torch.randn(2, 3, 4, width, depth)


def test_what_agrees_is_proved_once_and_used(monkeypatch):
    runs, given = [], draw()
    monkeypatch.setattr(chunk_scan, "scan", lambda loop, *x: runs.append(1) or loop(*x))
    usual = scan_chunks(*given)
    assert not runs
    with as_if_on("cuda"):
        for _ in range(3):
            torch.testing.assert_close(scan_chunks(*given), usual)
    # the proof, and three calls
    assert len(runs) == 4


def louder(loop, *x):
    states, last = loop(*x)
    return states * 1.01, last


def another_gradient(loop, start, kept, added):
    return loop(start, kept.detach() + 0 * kept, added)


def crash(loop, *x):
    raise RuntimeError("ptxas: out of registers\nsecond line")


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (louder, "differs from the plain formula in a small case: states, off by"),
        (another_gradient, "small case: gradient of the transitions, off by"),
        (crash, "failed in a small case: RuntimeError: ptxas: out of registers$"),
    ],
)
def test_what_does_not_agree_is_refused_with_one_warning(formula, says, monkeypatch):
    monkeypatch.setattr(chunk_scan, "scan", formula)
    given = draw()
    with as_if_on("cuda"):
        named = "chunk scan is not used for 8 channels of keys, 6 of values"
        with pytest.warns(RuntimeWarning, match=f"the Triton {named}: .*{says}"):
            made, _ = scan_chunks(*given)
        torch.testing.assert_close(scan_chunks(*given)[0], made)
    torch.testing.assert_close(made, decay._scan(*given)[0])


def test_other_inputs_are_refused_with_a_reason():
    start, kept, added = draw()
    assert "only tensors on GPUs" in chunk_scan.unusable_reason(decay._scan, start, kept, added)
    with as_if_on("cuda"):
        wide = [x.double() for x in (start, kept, added)]
        assert "float64 is not supported" in chunk_scan.unusable_reason(decay._scan, *wide)
        assert "several dtypes" in chunk_scan.unusable_reason(decay._scan, start.double(), kept, added)
        assert "a tensor is empty" in chunk_scan.unusable_reason(decay._scan, start, kept[:, :, :0], added[:, :, :0])
        assert "at most 256" in chunk_scan.unusable_reason(decay._scan, *draw(257, 1))


@installed
@pytest.mark.extended
def test_the_kernel_agrees_with_the_loop_over_chunks():
    interpret_tests("chunk_scan_interpreted.py")


COMPILED = """
import torch
from ordinate.core.devices import as_if_on
from ordinate.ops.decay import scan_chunks
from ordinate.ops.triton import proofs

shapes = (1, 2, 5, 3), (1, 2, 4, 5, 5), (1, 2, 4, 5, 3)
inputs = [torch.randn(shape).requires_grad_() for shape in shapes]

def results(function):
    states, last = function(*inputs)
    return states, last, *torch.autograd.grad(states.square().sum() + last.sum(), inputs)

with as_if_on("cuda"):
    usual = results(scan_chunks)
    assert list(proofs.found().values()) == [None]
    compiled = torch.compile(scan_chunks, backend="aot_eager", fullgraph=True)
    assert all(one.equal(other) for one, other in zip(usual, results(compiled), strict=True))
    graphs = []
    torch.compile(scan_chunks, backend=lambda graph, example: graphs.append(graph.code) or graph, fullgraph=True)(
        *(x.detach() for x in inputs)
    )
    assert "triton_chunk_scan" in graphs[0]
"""


@installed
@pytest.mark.extended
def test_torch_compile_takes_it_whole_forward_and_backward():
    # the type checks of tests cannot be compiled
    interpret("-c", COMPILED)
