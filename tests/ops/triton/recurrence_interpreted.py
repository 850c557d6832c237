"""Linear attention with decay by Triton on a CPU, in Triton's interpreter: run by test_recurrence.py.

    TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/recurrence_interpreted.py

Marked `extended` is what takes more than a few seconds in all.
"""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from ordinate import Geometry
from ordinate.core.devices import as_if_on
from ordinate.mixers import Rwkv6
from ordinate.ops import chunks, decay, scalar_decay
from ordinate.ops.decay import decaying_linear_attention, read_after_update
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.ops.triton import chunk_decays, chunk_gradients, chunk_states, proofs, recurrence, scans
from ordinate.ops.triton.scan_outputs import CHUNK
from ordinate.schemes import NoPosition
from ordinate.testing.tolerance import assert_as_close

WAYS = ["before", "after", "shared", "grouped"]


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret
    proofs.found().clear()


@pytest.fixture
def proved(monkeypatch):
    """Leave out proofs, which take longer than the tests."""
    monkeypatch.setattr(proofs, "_tested", lambda operator, said, case: None)


def drawn(way, tokens, width, depth, strength=0.1):
    """Inputs of a way, tokens before heads, as projections leave them."""

    def rows(heads, channels):
        return torch.randn(2, tokens, heads, channels).transpose(1, 2)

    q, k = (rows(1 if way == "grouped" else 2, width) for _ in range(2))
    logs = -strength * rows(2, width if way in ("before", "after") else 1).square()
    bonus = [torch.randn(2, width)] if way == "before" else []
    return [q, k, rows(2, depth), logs, *bonus, torch.randn(2, 2, width, depth)]


def compute(way, *given):
    """The function of a way, of inputs in one order."""
    if way == "before":
        return decaying_linear_attention(*given)
    if way == "after":
        return read_after_update(*given)
    q, k, v, logs, start = given
    return scalar_decay_attention(q, k, v, logs[..., 0], start)


def looped(way, q, k, v, logs, *rest):
    """Token by token."""
    groups, state, made = v.shape[1] // q.shape[1], rest[-1], []
    q, k = (x.repeat_interleave(groups, 1) for x in (q, k))
    for t in range(v.shape[2]):
        ask, added = q[:, :, t, None], k[:, :, t, :, None] * v[:, :, t, None]
        if way == "before":
            made.append(ask @ (state + rest[0][..., None] * added))
        state = logs[:, :, t, :, None].exp() * state + added
        if way != "before":
            made.append(ask @ state)
    return torch.cat(made, 2), state


def results(function, inputs, upstream):
    leaves = [x.clone().requires_grad_() for x in inputs]
    made = function(*leaves)
    return [*made, *torch.autograd.grad(made, leaves, [x.to(made[0].dtype) for x in upstream])]


def assert_it_agrees(way, inputs):
    """Outputs and gradients against the loop over tokens in float64; errors as those of the chunks in PyTorch."""
    upstream = torch.randn_like(inputs[2]), torch.randn_like(inputs[-1])
    with as_if_on("cuda"):
        found = results(lambda *given: compute(way, *given), inputs, upstream)
    assert None in proofs.found().values()
    usual = results(lambda *given: compute(way, *given), inputs, upstream)
    exact = results(lambda *given: looped(way, *given), [x.double() for x in inputs], upstream)
    for place, (out, plain, true) in enumerate(zip(found, usual, exact, strict=True)):
        assert_as_close(out, plain, true, factor=3.0, what=f"result {place}")


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokens", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_any_number_of_tokens_is_read(tokens, way):
    assert_it_agrees(way, drawn(way, tokens, 16, 16))


@pytest.mark.parametrize("width", [1, 16])
def test_a_decay_that_channels_share_beside_a_bonus_is_that_of_each(width):
    # a head may have a single channel
    q, k, v, logs, bonus, start = drawn("before", CHUNK + 7, width, 5)
    logs, upstream = logs[..., :1], (torch.randn_like(v), torch.randn_like(start))
    given = scans.Problem(q, k, v, logs, bonus, start)
    y, last, *saved = scans.forward(given)
    found = scans.backward(upstream, given, *saved)
    exact = results(lambda *given: looped("before", *given), [x.double() for x in given], upstream)
    for one, true in zip((y, last, *found), exact, strict=True):
        assert torch.allclose(one.double(), true, rtol=1e-4, atol=1e-4)


@pytest.mark.extended
@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("width", "depth"), [(3, 1), (20, 65), (65, 20), (80, 33), (128, 64), (32, 128)])
def test_any_number_of_channels_is_read(width, depth, way):
    assert_it_agrees(way, drawn(way, CHUNK + 7, width, depth))


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strength", [1e-6, 1.0, 1e3, torch.inf])
def test_no_decay_is_too_weak_or_too_strong(strength, way):
    inputs = drawn(way, 2 * CHUNK + 3, 16, 16, min(strength, 1.0))
    if strength > 1:
        # beside weak ones
        inputs[3][:, :, ::5] = -strength
    inputs[3][:, :, ::7] = 0.0
    assert_it_agrees(way, inputs)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("way", WAYS)
def test_a_decay_that_leaves_nothing_has_no_gradient_at_all(way):
    inputs = drawn(way, 40, 16, 16)
    inputs[3] = torch.full_like(inputs[3], -1000.0)
    upstream = torch.randn_like(inputs[2]), torch.randn_like(inputs[-1])
    with as_if_on("cuda"):
        found = results(lambda *given: compute(way, *given), inputs, upstream)
    assert not found[5].any()


@pytest.mark.usefixtures("proved")
def test_inputs_of_any_strides_give_the_same_bits():
    inputs = drawn("after", 40, 16, 24)
    others = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in inputs]
    upstream = torch.randn(2, 2, 40, 24), torch.randn(2, 2, 16, 24)
    apart = [x[:, :, :, None].expand(*x.shape[:3], 2, x.shape[3])[:, :, :, 1] for x in upstream]
    with as_if_on("cuda"):
        one, two = (
            results(lambda *given: compute("after", *given), *given)
            for given in ((inputs, upstream), (others, apart))
        )
    assert all(a.equal(b) for a, b in zip(one, two, strict=True))


@pytest.mark.usefixtures("proved")
def test_in_pieces_it_is_the_same():
    inputs = drawn("before", 70, 16, 16)
    with as_if_on("cuda"):
        whole, end = compute("before", *inputs)
        state, made = inputs[-1], []
        for part in (slice(0, 33), slice(33, 34), slice(34, 70)):
            y, state = compute("before", *(x[:, :, part] for x in inputs[:4]), inputs[4], state)
            made.append(y)
    torch.testing.assert_close(torch.cat(made, 2), whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, end, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("peaked", [False, True])
def test_linear_attention_is_read_by_it(peaked):
    q, k, v, _, start = drawn("after", 70, 16, 17)
    steps = (3 * torch.randn(2, 2, 71)).clamp(min=0).cumsum(-1) if peaked else None
    upstream = torch.randn_like(v), torch.randn_like(start)
    found = []
    for kind in ("cuda", "cpu"):
        with as_if_on(kind):
            found.append(results(lambda *x: chunks.linear_attention(*x, steps), [q, k, v, start], upstream))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("way", ["before", "grouped"])
def test_second_gradients_are_those_of_the_formula(way):
    found = []
    for kind in ("cuda", "cpu"):
        torch.manual_seed(0)
        leaves = [x.requires_grad_() for x in drawn(way, 35, 16, 16)]
        with as_if_on(kind):
            first = torch.autograd.grad(compute(way, *leaves)[0].square().sum(), leaves, create_graph=True)
            found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


@pytest.mark.usefixtures("proved")
def test_torch_func_takes_the_formula():
    inputs = drawn("after", 9, 16, 16)
    with as_if_on("cuda"):
        mapped, _ = torch.func.vmap(lambda q: compute("after", q, *inputs[1:]))(inputs[0][None])
        torch.testing.assert_close(mapped[0], compute("after", *inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_the_operators_say_the_right_shapes_and_strides(way):
    inputs = drawn(way, 40, 16, 24)
    given = [*inputs[:4], inputs[4] if way == "before" else None, inputs[-1]]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.ordinate.triton_recurrence.default, given, test_utils=checks)
    y, last, *kept = torch.ops.ordinate.triton_recurrence(*given)
    back = torch.ops.ordinate.triton_recurrence_backward.default
    torch.library.opcheck(back, (y, last, given, *kept), test_utils=checks)


def test_what_agrees_is_proved_once_and_a_mixer_takes_it(monkeypatch):
    mixer, x = Rwkv6(width=32, heads=2), torch.randn(2, 9, 32)
    torch.nn.init.normal_(mixer.out, std=0.1)
    at = NoPosition().at(Geometry.causal(9))
    usual, _ = mixer(x, at)
    runs, once = [], scans.forward
    monkeypatch.setattr(scans, "forward", lambda given: runs.append(1) or once(given))
    with as_if_on("cuda"):
        for _ in range(2):
            torch.testing.assert_close(mixer(x, at)[0], usual, rtol=1e-4, atol=1e-5)
    # one for the proof
    assert len(runs) == 3


# the module, what stands in its kernels, and what stands there in the mutant
MUTANTS = [
    (chunk_decays, "tl.where(logs < LEAST, LEAST, logs)", "logs * 0.99"),
    (chunk_decays, "ones(s < t if FORM.before else s <= t)", "ones(s <= t if FORM.before else s < t)"),
    (chunk_decays, "return summed(ones(s > t), logs, FORM)", "return summed(ones(s >= t), logs, FORM)"),
    (chunk_decays, "tl.where(t > s, logs, 0.0), 0)", "tl.where(t >= s, logs, 0.0), 0)"),
    (chunk_decays, "tl.where(t >= s, tl.exp(sums), 0.0)", "tl.exp(sums)"),
    (chunk_decays, "(t == i + 1) & (i % 2 == 0)", "(t == i + 1)"),
    (chunk_decays, "% 2 == 1)[:, None]", "% 2 == 0)[:, None]"),
    (chunk_decays, "read = s < t if FORM.before else s <= t", "read = s < t"),
    (chunk_decays, "(t ^ 1) == s", "(t ^ 1) >= s"),
    (chunk_states, "chunk = chunks - 1 - step if FORM.back else step", "chunk = step"),
    (
        chunk_states,
        "tl.exp(entering(logs, FORM) if FORM.back else leaving(logs, FORM))",
        "tl.exp(leaving(logs, FORM))",
    ),
    (
        chunk_states,
        "tl.exp(leaving(logs, FORM) if FORM.back else entering(logs, FORM))",
        "tl.exp(entering(logs, FORM))",
    ),
    (chunk_states, "state *= tl.exp(tl.sum(logs, 0))[:, None]", "state *= 1.0"),
    (chunk_states, "tl.load(bonus + head * FORM.width + j", "tl.load(bonus + j"),
    (chunk_states, "for level in range(0, FORM.levels)", "for level in range(0, FORM.levels - 1)"),
    (chunk_states, "tl.trans(pairs) if FORM.back else pairs", "pairs"),
    (chunk_states, "batch, head // groups, i, j, tokens, FORM.width)", "batch, head, i, j, tokens, FORM.width)"),
    (chunk_states, "load_rows(first, batch, head, j, e, FORM.width, FORM.depth)", "tl.zeros((16, 16), tl.float32)"),
    (chunk_gradients, "kept += tl.sum(state * later, 1)", "kept += 0.0"),
    (chunk_gradients, "asked *= tl.exp(entering(logs, FORM))", "asked *= 1.0"),
    (chunk_gradients, "stored *= tl.exp(leaving(logs, FORM))", "stored *= 1.0"),
    (chunk_gradients, "crossing = tl.where(late, entered, left)", "crossing = tl.where(late, left, entered)"),
    (chunk_gradients, "own + tl.trans(own)", "own"),
    (chunk_gradients, "entered += tl.where(late, above * mixed, 0.0)", "entered += 0.0"),
    (chunk_gradients, "left += tl.where(late, 0.0, above * mixed)", "left += 0.0"),
    (chunk_gradients, "        decays += entered\n", "        decays += 0.0\n"),
    (chunk_gradients, "shares = tl.sum(own * asks * keys, 0)", "shares = tl.sum(asks * keys, 0)"),
    (chunk_gradients, "found[0] + own * keys, found[1] + own * asks", "found[0] + own * keys, found[1]"),
    (chunk_gradients, "ones(t < s), input_precision", "ones(t <= s), input_precision"),
    (chunk_gradients, "tl.where(t >= s, below, 0.0)", "below"),
    (chunk_gradients, "summed(ones(s >= t), entered, FORM)", "summed(ones(s > t), entered, FORM)"),
    (chunk_gradients, "summed(ones(s < t), left, FORM)", "summed(ones(s <= t), left, FORM)"),
    (scans, ".sum(2) if groups > 1", "[:, :, 0] if groups > 1"),
    (scans, "chunks, -1).sum((0, 2))", "chunks, -1)[:, :, 0].sum(0)"),
]


def changed(monkeypatch, tmp_path, module, text, other):
    """Replace a module's kernels by mutants, and import anew what has them from there."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert text in source
    mutant = tmp_path / "mutant.py"
    mutant.write_text(source.replace(text, other), encoding="utf-8")
    order = [chunk_decays, chunk_states, chunk_gradients, scans]
    for part in order[order.index(module) :]:
        spec = importlib.util.spec_from_file_location(
            part.__name__, mutant if part is module else part.__file__, loader=None
        )
        fresh = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, part.__name__, fresh)
        spec.loader.exec_module(fresh)


@pytest.mark.extended
@pytest.mark.parametrize(("module", "text", "other"), MUTANTS)
def test_the_proof_kills_a_mutant_and_the_plain_formula_is_used(module, text, other, monkeypatch, tmp_path):
    changed(monkeypatch, tmp_path, module, text, other)
    monkeypatch.setattr(proofs.warnings, "warn", lambda *given, **options: None)

    def is_refused(way):
        inputs = drawn(way, 9, 16, 16)
        plain = decay._plain if way in ("before", "after") else scalar_decay._plain
        given = [*inputs[:4], inputs[4] if way == "before" else None, inputs[-1]]
        with as_if_on("cuda"):
            reason = recurrence.unusable_reason(plain, *given)
            if reason is not None:
                assert "small case" in reason
                torch.testing.assert_close(compute(way, *inputs), plain(*given))
        return reason is not None

    assert any(is_refused(way) for way in WAYS)
