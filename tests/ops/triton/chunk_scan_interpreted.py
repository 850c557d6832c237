"""The scan over chunks by Triton on a CPU, in Triton's interpreter: test_chunk_scan.py runs it in its own process.

TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/chunk_scan_interpreted.py
"""

import importlib
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize
from torch.utils.flop_counter import FlopCounterMode

from ordinate import Geometry
from ordinate.core.devices import as_if_on
from ordinate.mixers import DeltaNet, GatedDeltaNet, KimiDeltaAttention, Rwkv7
from ordinate.ops import decay
from ordinate.ops.decay import scan_chunks
from ordinate.ops.delta_rule import delta_rule, gated_delta_rule
from ordinate.ops.triton import chunk_scan, chunk_scan_kernels, proofs
from ordinate.schemes import NoPosition
from ordinate.testing.tolerance import assert_as_close

MIXERS = [DeltaNet, GatedDeltaNet, KimiDeltaAttention, Rwkv7]


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret
    proofs.found().clear()


@pytest.fixture
def proved(monkeypatch):
    """Leave out proofs; the kernel runs on what looks like a GPU."""
    monkeypatch.setattr(proofs, "_tested", lambda operator, said, case: None)
    runs = counted(monkeypatch)
    yield
    assert runs


def counted(monkeypatch):
    """Return a list that grows with each run of the kernel: whether it goes backwards."""
    runs, once = [], chunk_scan_kernels.scan
    monkeypatch.setattr(chunk_scan_kernels, "scan", lambda *given: runs.append(given[3]) or once(*given))
    return runs


def drawn(chunks, width, depth):
    kept = torch.randn(2, 3, chunks, width, width) / width**0.5
    return torch.randn(2, 3, width, depth), kept, torch.randn(2, 3, chunks, width, depth)


def looped(start, kept, added):
    """Chunk by chunk, number by number of the sum."""
    states = [start]
    for m, a in zip(kept.unbind(2), added.unbind(2), strict=True):
        states.append((m[..., None] * states[-1][:, :, None]).sum(3) + a)
    return torch.stack(states[:-1], 2), states[-1]


def results(function, inputs, upstream):
    leaves = [x.clone().requires_grad_() for x in inputs]
    made = function(*leaves)
    return [*made, *torch.autograd.grad(made, leaves, [x.to(made[0].dtype) for x in upstream])]


def assert_it_agrees(inputs):
    """States and gradients against the loop in float64; errors as those of the loop in PyTorch."""
    upstream = torch.randn_like(inputs[2]), torch.randn_like(inputs[0])
    with as_if_on("cuda"):
        found = results(scan_chunks, inputs, upstream)
    usual = results(scan_chunks, inputs, upstream)
    exact = results(looped, [x.double() for x in inputs], upstream)
    for place, (out, plain, true) in enumerate(zip(found, usual, exact, strict=True)):
        assert_as_close(out, plain, true, factor=3.0, what=f"result {place}")


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("chunks", [1, 2, 16, 33])
def test_any_number_of_chunks_is_read(chunks):
    assert_it_agrees(drawn(chunks, 16, 16))


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize(
    ("width", "depth"), [(1, 1), (3, 20), (20, 3), (16, 32), (33, 16), (64, 65), (96, 40), (130, 5)]
)
def test_any_number_of_rows_and_columns_is_read(width, depth):
    assert_it_agrees(drawn(3, width, depth))


@pytest.mark.usefixtures("proved")
def test_inputs_of_any_strides_give_the_same_bits():
    inputs, upstream = drawn(3, 20, 24), (torch.randn(2, 3, 3, 20, 24), torch.randn(2, 3, 20, 24))
    others = [x.mT.contiguous().mT for x in inputs]
    apart = [x[..., None].expand(*x.shape, 2)[..., 1] for x in upstream]
    with as_if_on("cuda"):
        one, two = (results(scan_chunks, *given) for given in ((inputs, upstream), (others, apart)))
    assert all(a.equal(b) for a, b in zip(one, two, strict=True))


@pytest.mark.usefixtures("proved")
def test_in_pieces_it_is_the_same():
    start, kept, added = drawn(9, 16, 16)
    with as_if_on("cuda"):
        whole, end = scan_chunks(start, kept, added)
        made = []
        for part in (slice(0, 4), slice(4, 5), slice(5, 9)):
            states, start = scan_chunks(start, kept[:, :, part], added[:, :, part])
            made.append(states)
    assert torch.cat(made, 2).equal(whole)
    assert start.equal(end)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("asked", ["states", "last"])
def test_gradients_of_one_result_alone_are_right(asked):
    found = []
    for kind in ("cuda", "cpu"):
        torch.manual_seed(0)
        leaves = [x.requires_grad_() for x in drawn(3, 16, 16)]
        with as_if_on(kind):
            found.append(torch.autograd.grad(scan_chunks(*leaves)[asked == "last"].square().sum(), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("learned", [[0], [1], [2], [0, 2]])
def test_of_inputs_without_gradients_nothing_is_computed(learned):
    inputs = drawn(3, 16, 16)
    leaves = [inputs[place].requires_grad_() for place in learned]
    with as_if_on("cuda"):
        made = scan_chunks(*inputs)[0].sum()
        with FlopCounterMode(display=False) as products:
            found = torch.autograd.grad(made, leaves)
    # the gradient of the transitions alone is a product of PyTorch
    assert bool(products.get_total_flops()) == (1 in learned)
    usual = torch.autograd.grad(scan_chunks(*inputs)[0].sum(), leaves)
    for one, other in zip(found, usual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("proved")
def test_second_gradients_are_those_of_the_loop():
    found = []
    for kind in ("cuda", "cpu"):
        torch.manual_seed(0)
        leaves = [x.requires_grad_() for x in drawn(3, 16, 16)]
        with as_if_on(kind):
            first = torch.autograd.grad(scan_chunks(*leaves)[0].square().sum(), leaves, create_graph=True)
            found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


@pytest.mark.usefixtures("proved")
def test_gradients_of_many_results_at_once_are_those_one_by_one():
    leaves = [x.requires_grad_() for x in drawn(2, 3, 2)]
    with as_if_on("cuda"):
        made, _ = scan_chunks(*leaves)
        many = torch.randn(4, *made.shape)
        at_once = torch.autograd.grad(made, leaves, many, is_grads_batched=True, retain_graph=True)
        each = [torch.autograd.grad(made, leaves, one, retain_graph=True) for one in many]
    for found, one_by_one in zip(at_once, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(one_by_one))


@pytest.mark.usefixtures("proved")
def test_torch_func_takes_the_loop():
    start, kept, added = drawn(2, 16, 16)
    with as_if_on("cuda"):
        mapped, _ = torch.func.vmap(lambda x: scan_chunks(x, kept, added))(start[None])
        torch.testing.assert_close(mapped[0], scan_chunks(start, kept, added)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("back", [False, True])
def test_the_operator_says_the_right_shapes_and_strides(back):
    operator, checks = torch.ops.ordinate.triton_chunk_scan.default, ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, (*drawn(3, 20, 24), back), test_utils=checks)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("tokens", [1, 70, 200])
def test_the_delta_rules_are_linked_by_it(tokens):
    q, k, v, w = torch.randn(4, 1, 2, tokens, 8).unbind()
    k, w, rates, logs = normalize(k, dim=-1), -w.square(), torch.rand(1, 2, tokens), -torch.rand(1, 2, tokens)
    start, upstream = torch.randn(1, 2, 8, 8), (torch.randn_like(v), torch.randn(1, 2, 8, 8))
    for rule, inputs in (
        (delta_rule, (q, k, v, w, -k, k * rates[..., None], start)),
        (gated_delta_rule, (q, k, v, rates, logs, start)),
    ):
        usual = results(rule, inputs, upstream)
        exact = results(rule, [x.double() for x in inputs], upstream)
        with as_if_on("cuda"):
            found = results(rule, inputs, upstream)
        for place, (out, plain, true) in enumerate(zip(found, usual, exact, strict=True)):
            assert_as_close(out, plain, true, factor=3.0, what=f"result {place}")


@pytest.mark.parametrize("mixer", MIXERS)
def test_what_agrees_is_proved_once_and_the_mixers_take_it(mixer, monkeypatch):
    layer, x = mixer(width=32, heads=2), torch.randn(2, 70, 32)
    for weight in layer.parameters():
        # outputs begin at 0
        if not weight.any():
            torch.nn.init.normal_(weight, std=0.1)
    at = NoPosition().at(Geometry.causal(70))
    usual, _ = layer(x, at)
    runs = counted(monkeypatch)
    with as_if_on("cuda"):
        for _ in range(2):
            torch.testing.assert_close(layer(x, at)[0], usual, rtol=1e-4, atol=1e-5)
    # two for the proof, one of them backwards
    assert runs == [False, True, False, False]
    assert list(proofs.found().values()) == [None]


# what stands in the kernel, and what stands there in the mutant
MUTANTS = [
    (
        "real = (i < FORM.width)[:, None] & (e < FORM.depth)",
        "real = (i < FORM.width)[:, None] & (e < FORM.depth - 1)",
    ),
    ("x + i[:, None] * FORM.depth + e[None, :], mask=real", "x + i[:, None] * FORM.width + e[None, :], mask=real"),
    (
        "inside = (i < FORM.width)[:, None] & (e < FORM.depth)",
        "inside = (i < FORM.width)[:, None] & (e < FORM.depth - 1)",
    ),
    ("inside = (i < FORM.width)", "inside = (i < FORM.width - 1)"),
    ("x + i[:, None] * FORM.depth + e[None, :], block", "x + i[:, None] * FORM.width + e[None, :], block"),
    (
        "real = (i < FORM.width)[:, None] & (j < FORM.width)",
        "real = (i < FORM.width)[:, None] & (j < FORM.width - 1)",
    ),
    (
        "j[None, :] * FORM.width + i[:, None] if FORM.back else",
        "i[:, None] * FORM.width + j[None, :] if FORM.back else",
    ),
    ("(chunks - 1 - step if FORM.back else step)", "step"),
    ("row * chunks + (", "row + ("),
    ("state = load_block(start + row * SIZE", "state = load_block(start"),
    ("state = load_block(start + row", "state = 0.0 * load_block(start + row"),
    ("state = load_block(added + chunk", "state = 0.0 * load_block(added + chunk"),
    ("e = tl.program_id(1) * FORM.columns +", "e ="),
    ("range(0, FORM.width, FORM.part)", "range(0, FORM.part, FORM.part)"),
    ("kept + chunk * FORM.width * FORM.width", "kept + row * FORM.width * FORM.width"),
    ("before = load_block(states + chunk * SIZE, j", "before = load_block(states + row * SIZE, j"),
    ("j = begin +", "j ="),
    ("tl.dot(transition, before, state,", "tl.dot(transition, before,"),
    ("store_block(last + row * SIZE", "store_block(last"),
    ("store_block(states + chunk * SIZE, i, e, state", "store_block(states + chunk * SIZE, i, e, 0.0 * state"),
]


@pytest.mark.parametrize(("text", "other"), MUTANTS)
def test_the_proof_kills_a_mutant_and_the_loop_is_used(text, other, monkeypatch, tmp_path):
    source = Path(chunk_scan_kernels.__file__).read_text(encoding="utf-8")
    assert source.count(text) == 1
    changed = tmp_path / "chunk_scan_kernels.py"
    changed.write_text(source.replace(text, other), encoding="utf-8")
    namespace = {"__name__": chunk_scan_kernels.__name__}
    exec(compile(changed.read_text(encoding="utf-8"), changed, "exec"), namespace)
    monkeypatch.setattr(chunk_scan_kernels, "scan", namespace["scan"])
    monkeypatch.setattr(proofs.warnings, "warn", lambda *given, **options: None)
    # several parts of the sum, and programs; nothing is full
    inputs = drawn(2, 40, 44)
    with as_if_on("cuda"):
        assert "differs from" in chunk_scan.unusable_reason(decay._scan, *inputs)
        made, last = scan_chunks(*inputs)
    usual, end = decay._scan(*inputs)
    assert made.equal(usual)
    assert last.equal(end)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("(above_last, inputs[1], above, True)", "(above_last, inputs[1], above, False)"),
        ("after @ before.mT", "after @ inputs[2].mT"),
        ("return of_start, after", "return above_last, after"),
        ("else None, after\n", "else None, above\n"),
    ],
)
def test_the_proof_kills_a_mutant_of_the_backward_pass(text, other):
    source = Path(chunk_scan.__file__).read_text(encoding="utf-8")
    assert source.count(text) == 1
    # the operator itself is defined already
    body = source[source.index("class _Scan") : source.index("@torch.library.impl")].replace(text, other)
    usual = chunk_scan._Scan
    try:
        exec(body, vars(chunk_scan))
        with as_if_on("cuda"), pytest.warns(RuntimeWarning, match="small case: gradient of"):
            assert "gradient of" in chunk_scan.unusable_reason(decay._scan, *drawn(2, 20, 24))
    finally:
        chunk_scan._Scan = usual
