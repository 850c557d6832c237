"""The Triton rotation on a CPU, in Triton's interpreter: run by test_rotation.py in a process of its own.

    TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/rotation_interpreted.py

bfloat16 is left out: the interpreter rounds it wrongly.
"""

import importlib
from pathlib import Path

import pytest
import torch

from ordinate.core.devices import as_if_on
from ordinate.ops.rotate import Rotation
from ordinate.ops.triton import proofs, rotation
from ordinate.ops.triton import rotate as kernels
from ordinate.schemes import Rope
from ordinate.testing.tolerance import assert_as_close
from tests.ops.test_rotate import LAYOUTS, ORDERS, looped, waves

TYPES = [torch.float32, torch.float16]


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret
    proofs.found().clear()


@pytest.fixture
def proved(monkeypatch):
    """Leave out proofs, which take longer than the tests."""
    monkeypatch.setattr(proofs, "_tested", lambda operator, said, case: None)


def assert_it_agrees(order, type, layout, sizes, turned):
    """Output and gradient against the formula pair by pair."""
    (b, h, n, d), (pairs, rows, heads) = sizes, turned
    cos, sin = (wave.float().double() for wave in waves(rows, heads, n, pairs))
    x, upstream = (ORDERS[order](b, h, n, d).to(type) for _ in range(2))
    given = x.clone().requires_grad_()
    with as_if_on("cuda"):
        placed = Rotation(cos, sin, layout)
        assert placed.triton_unusable_reason(x) is None
        out = placed(x)
        (slope,) = torch.autograd.grad(placed(given), given, upstream)
    assert_as_close(out, looped(x, cos, sin, layout), looped(x.double(), cos, sin, layout))
    usual, exact = looped(upstream, cos, -sin, layout), looped(upstream.double(), cos, -sin, layout)
    assert_as_close(slope, usual, exact, factor=3, what="gradient")


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_formula_in_every_order_of_memory(order, type, layout):
    assert_it_agrees(order, type, layout, (2, 5, 7, 10), (3, 1, 1))


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("d", "pairs"), [(2, 1), (8, 4), (7, 3), (80, 40), (96, 16), (256, 128)])
@pytest.mark.parametrize(("rows", "heads"), [(1, 1), (2, 5), (2, 1)])
def test_any_width_is_rotated_wholly_or_in_part(d, pairs, rows, heads, layout):
    assert_it_agrees("tokens first", torch.float32, layout, (2, 5, 9, d), (pairs, rows, heads))


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [0, 1, 8, 130, 1025])
def test_any_number_of_tokens_is_rotated(n, layout):
    assert_it_agrees("heads first", torch.float32, layout, (1, 2, n, 8), (4, 1, 1))


@pytest.mark.usefixtures("proved")
def test_a_tensor_that_pytorch_negates_as_it_is_read():
    placed = Rotation(*(wave.float().double() for wave in waves(1, 1, 7, 3)), "half")
    # an imaginary part: its channels are not contiguous either
    x = torch.complex(torch.randn(2, 5, 7, 8), torch.randn(2, 5, 7, 8)).conj().imag
    assert x.is_neg()
    with as_if_on("cuda"):
        assert torch.equal(placed(x), placed(x.resolve_neg()))


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_gradients_are_those_of_the_formula(layout):
    placed = Rotation(*(wave.float().double() for wave in waves(1, 1, 3, 2)), layout)
    x, upstream = (torch.randn(1, 2, 3, 6, requires_grad=True) for _ in range(2))
    with as_if_on("cuda"):
        assert placed.triton_unusable_reason(x) is None
        (slope,) = torch.autograd.grad(placed(x), x, upstream, create_graph=True)
        (twice,) = torch.autograd.grad(slope.square().sum(), upstream)
    usual = (placed.cos.square() + placed.sin.square()).float()
    partner = torch.cat([usual, usual], -1) if layout == "half" else usual.repeat_interleave(2, -1)
    expected = 2 * upstream * torch.cat([partner, torch.ones(1, 1, 3, 2)], -1)
    assert torch.allclose(twice, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("order", "d", "pairs", "heads"), [("heads first", 8, 4, 5), ("tokens first", 10, 3, 2)])
def test_queries_and_keys_are_rotated_by_one_launch_as_by_two(order, d, pairs, heads, type, layout, monkeypatch):
    placed = Rotation(*(wave.float().double() for wave in waves(1, 1, 7, pairs)), layout)
    q, k = ORDERS[order](2, 6, 7, d).to(type), ORDERS["heads first"](2, heads, 7, d).to(type)
    upstream, given = (torch.randn_like(q), torch.randn_like(k)), (q.requires_grad_(), k.requires_grad_())
    runs, once = [], kernels.rotate
    with as_if_on("cuda"):
        assert placed.triton_unusable_reason(q, both=True) is None
        monkeypatch.setattr(kernels, "rotate", lambda *given, **options: runs.append(1) or once(*given, **options))
        made = placed.both(q, k)
        slopes = torch.autograd.grad(made, given, upstream)
        assert len(runs) == 2
        # one of them may be all that has a gradient
        (alone,) = torch.autograd.grad(placed.both(q, k)[1], k, upstream[1])
        usual = placed(q), placed(k)
        expected = torch.autograd.grad(usual, given, upstream)
    for one, other in zip((*made, *slopes, alone), (*usual, *expected, expected[1]), strict=True):
        assert one.equal(other)
    with torch.no_grad(), as_if_on("cuda"):
        assert all(one.equal(other) for one, other in zip(placed.both(q, k), usual, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_gradients_of_queries_and_keys_are_those_of_one_after_the_other(layout):
    placed = Rotation(*(wave.float().double() for wave in waves(1, 1, 3, 2)), layout)
    q, k = (torch.randn(1, heads, 3, 6, requires_grad=True) for heads in (2, 1))
    upstream = torch.randn_like(q, requires_grad=True), torch.randn_like(k, requires_grad=True)
    found = []
    with as_if_on("cuda"):
        for made in (placed.both(q, k), (placed(q), placed(k))):
            slopes = torch.autograd.grad(made, (q, k), upstream, create_graph=True)
            found.append(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), upstream))
    assert all(one.equal(other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_into_a_part_of_a_cache_nothing_else_is_written(layout):
    x, (cos, sin) = torch.randn(2, 5, 7, 10), (wave.float() for wave in waves(1, 1, 7, 4))
    cache = torch.full((2, 5, 20, 10), 3.0)
    kernels.rotate(x, cache[:, :, 6:13], cos, sin, interleaved=layout == "interleaved", back=False)
    expected = torch.full_like(cache, 3.0)
    expected[:, :, 6:13] = rotation.rotate(x, cos, sin, interleaved=layout == "interleaved", back=False)
    assert cache.equal(expected)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", [3, 5])
@torch.no_grad()
def test_keys_are_rotated_into_part_of_a_cache_with_the_queries(heads, layout):
    placed = Rotation(*(wave.float().double() for wave in waves(1, 1, 7, 4)), layout)
    q, k = ORDERS["projected"](2, 5, 7, 10).float(), ORDERS["projected"](2, heads, 7, 10).float()
    cache = torch.full((2, heads, 20, 10), 3.0)
    expected = cache.clone()
    with as_if_on("cuda"):
        usual = placed.both(q, k)
        expected[:, :, 6:13] = usual[1]
        made = placed.both(q, k, cache[:, :, 6:13])
        assert made[0].equal(usual[0])
        # queries of another batch are rotated alone
        placed.both(q[:1], k, cache[:, :, 13:])
    assert cache[:, :, 13:].equal(usual[1])
    assert cache[:, :, :13].equal(expected[:, :, :13])


def test_a_scheme_is_rotated_by_the_kernel_as_on_a_gpu(monkeypatch):
    q, k = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8)
    scheme, positions = Rope(head_width=8), torch.arange(9)[None, :, None]
    usual = scheme.encode_query(q, positions), scheme.encode_key(k, positions)
    runs, once = [], kernels.rotate
    monkeypatch.setattr(kernels, "rotate", lambda *given, **options: runs.append(1) or once(*given, **options))
    with as_if_on("cuda"):
        made = scheme.encode_query(q, positions), scheme.encode_key(k, positions)
    # two for the proof, which both share
    assert len(runs) == 4
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(made, usual, strict=True))


# what stands in the kernels, and what stands there in the mutant
MUTANTS = [
    ("a * c - b * turn", "a * c + b * turn"),
    ("b * c + a * turn", "b * c"),
    ("turn = -s if FORM.back else s", "turn = s"),
    ("x, out, group * FORM.heads", "x, out, group * FORM.heads + 1"),
    ("(group - groups) * FORM.heads", "(group - groups) * FORM.heads + 1"),
    ("first_head + FORM.heads, heads", "first_head + 1, heads"),
    ("2 * FORM.pairs + tl.arange", "FORM.pairs + tl.arange"),
    ("(m + FORM.pairs)[None, :] * x.channel", "(m + FORM.padded)[None, :] * x.channel"),
    ("cos.shape[1] == sin.shape[1] == 1", "True"),
    ("(rest < FORM.width)", "(rest < FORM.width - 1)"),
    ("(channel < 2 * FORM.pairs)", "(channel < FORM.pairs)"),
]


@pytest.mark.parametrize(("text", "other"), MUTANTS)
def test_the_proof_kills_a_mutant_and_the_plain_formula_is_used(text, other, monkeypatch, tmp_path):
    source = Path(kernels.__file__).read_text(encoding="utf-8")
    assert text in source
    changed = tmp_path / "rotate.py"
    changed.write_text(source.replace(text, other), encoding="utf-8")
    namespace = {"__name__": kernels.__name__}
    exec(compile(changed.read_text(encoding="utf-8"), changed, "exec"), namespace)
    monkeypatch.setattr(kernels, "rotate", namespace["rotate"])
    refused = []
    for layout, heads in (("half", 5), ("half", 1), ("interleaved", 1)):
        x, placed = torch.randn(1, 5, 3, 10), Rotation(*waves(1, heads, 3, 3), layout)
        with as_if_on("cuda"), pytest.MonkeyPatch.context() as quiet:
            quiet.setattr(proofs.warnings, "warn", lambda *given, **options: None)
            for both in (False, heads == 1):
                reason = placed.triton_unusable_reason(x, both=both) or ""
                refused.append("differs from the plain formula" in reason)
            for out in (placed(x), *placed.both(x, x)):
                assert torch.allclose(out, placed._plain(x), rtol=1e-5, atol=1e-6)
    assert any(refused)
