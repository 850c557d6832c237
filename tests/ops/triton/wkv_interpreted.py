"""The WKV operator by Triton on a CPU, in Triton's interpreter: run by test_wkv.py in a process of its own.

TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/wkv_interpreted.py
"""

import importlib
from pathlib import Path

import pytest
import torch

from ordinate import Geometry
from ordinate.core.devices import as_if_on
from ordinate.mixers import Rwkv4
from ordinate.ops import wkv as ops
from ordinate.ops.triton import proofs, wkv, wkv_kernels
from ordinate.ops.wkv import PADDING_KEY, empty_sums
from ordinate.schemes import NoPosition
from tests.ops import test_wkv
from tests.ops.test_wkv import assert_agrees, draw, loop, read


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret
    proofs.found().clear()


@pytest.fixture
def proved(monkeypatch):
    """Leave out proofs; all runs are on a GPU, and of the kernels."""
    monkeypatch.setattr(proofs, "_tested", lambda operator, said, case: None)
    runs, once = [], wkv_kernels.forward
    monkeypatch.setattr(wkv_kernels, "forward", lambda *given: runs.append(1) or once(*given))
    with as_if_on("cuda"):
        yield
    assert runs


@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("tokens", "channels"), [(1, 5), (2, 32), (33, 33), (70, 7)])
def test_it_agrees_with_the_recurrence(tokens, channels, started):
    assert_agrees(draw(tokens, channels, started=started), torch.float32)


@pytest.mark.usefixtures("proved")
def test_inputs_of_any_strides_are_read():
    k, v, decay, bonus, start = draw(9)
    assert_agrees((k.mT.contiguous().mT, v.flip(1).flip(1), decay, bonus, start.mT.contiguous().mT), torch.float32)


@pytest.mark.usefixtures("proved")
def test_no_key_and_no_pace_is_too_large():
    k, v, _, bonus, start = draw(40, keys=100.0, started=False)
    decay = torch.tensor([0.0, -1e-6, -0.1, -10.0, -1e5])
    leaves = [x.requires_grad_() for x in (k, v, decay, bonus)]
    y, _ = ops.wkv(*leaves, start)
    exact, _ = loop(*(x.double() for x in (*leaves, start)))
    assert (y - exact).abs().max() < 1e-5
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.square().sum(), leaves))


@pytest.mark.usefixtures("proved")
def test_a_token_without_weight_leaves_no_trace():
    k, v, decay, bonus, start = draw(9, started=False)
    k[:, :4], v[:, :4] = PADDING_KEY, 0
    leaves = [x.requires_grad_() for x in (k, v, decay, bonus)]
    y, sums = read(*leaves, start)
    alone, ends = read(k[:, 4:], v[:, 4:], decay, bonus, start)
    torch.testing.assert_close(y[:, 4:], alone, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums, ends, rtol=1e-6, atol=1e-6)
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.square().sum(), leaves))


@pytest.mark.usefixtures("proved")
def test_in_pieces_it_is_the_same():
    k, v, decay, bonus, sums = draw(40, started=False)
    whole, end = read(k, v, decay, bonus, sums)
    means = []
    for keys, values in zip(k.split([17, 1, 0, 22], 1), v.split([17, 1, 0, 22], 1), strict=True):
        y, sums = ops.wkv(keys, values, decay, bonus, sums)
        means.append(y)
    torch.testing.assert_close(torch.cat(means, 1), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sums[:, :2] * torch.exp(sums[:, 2:]), end, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("proved")
def test_second_gradients_are_those_of_the_formula():
    found = []
    for compute in (ops.wkv, ops._plain):
        torch.manual_seed(0)
        leaves = [x.requires_grad_() for x in draw(7)[:4]]
        start = empty_sums(leaves[0].detach())
        first = torch.autograd.grad(compute(*leaves, start)[0].square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("proved")
def test_the_operators_say_the_right_shapes_and_strides():
    inputs, checks = draw(9), ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.ordinate.triton_wkv.default, inputs, test_utils=checks)
    saved = torch.ops.ordinate.triton_wkv(*inputs)
    back = torch.ops.ordinate.triton_wkv_backward.default
    torch.library.opcheck(back, (*saved[:2], list(inputs), list(saved)), test_utils=checks)


def test_what_agrees_is_proved_once_and_the_mixer_takes_it(monkeypatch):
    mixer, x = Rwkv4(width=20), torch.randn(2, 9, 20)
    for weight in (mixer.key, mixer.gate, mixer.out):
        torch.nn.init.normal_(weight, std=0.3)
    at = NoPosition().at(Geometry.causal(9))
    usual, _ = mixer(x, at)
    runs, once = [], wkv_kernels.forward
    monkeypatch.setattr(wkv_kernels, "forward", lambda *given: runs.append(1) or once(*given))
    with as_if_on("cuda"):
        for _ in range(2):
            torch.testing.assert_close(mixer(x, at)[0], usual, rtol=1e-4, atol=1e-5)
    # one for the proof
    assert len(runs) == 3
    assert list(proofs.found().values()) == [None]


# what stands in the kernels, and what stands there in the mutant
MUTANTS = [
    ("place, real = sums + batch * 3", "place, real = sums + batch * 2"),
    ("place, key, value = ahead, next_key", "place, key, value = ahead, key"),
    ("old, own = tl.exp(exponent - highest), tl.exp(extra + key", "old, own = 1.0, tl.exp(extra + key"),
    ("highest = tl.maximum(exponent + pace, key)", "highest = tl.maximum(exponent, key)"),
    ("old, own = tl.exp(exponent + pace - highest)", "old, own = tl.exp(exponent - highest)"),
    ("old * under + own, highest", "old * under, highest"),
    ("tl.store(share + place, part", "tl.store(share + place, 1.0"),
    ("exponent = -tl.load(end", "exponent = tl.load(end"),
    ("tokens - 1 - step", "step"),
    ("here = own * (value - mean)", "here = own * value"),
    ("later * above + own, mask", "later * above, mask"),
    ("(value * above + under) + here", "(value * above + under)"),
    ("of_bonus += here", "of_bonus = here"),
    ("of_decay += later * (value", "of_decay += (value"),
    ("old * (above_slope + above)", "old * above_slope"),
    ("old * under - added * mean", "old * under + added * mean"),
    ("later = tl.exp(first + exponent)", "later = tl.exp(exponent)"),
    ("tl.store(place + channels, later * under", "tl.store(place + channels, under"),
    ("ddecay.sum(0)", "ddecay[0]"),
]


@pytest.mark.parametrize(("text", "other"), MUTANTS)
def test_the_proof_kills_a_mutant_and_the_plain_formula_is_used(text, other, monkeypatch, tmp_path):
    source = Path(wkv_kernels.__file__).read_text(encoding="utf-8")
    assert text in source
    changed = tmp_path / "wkv_kernels.py"
    changed.write_text(source.replace(text, other), encoding="utf-8")
    namespace = {"__name__": wkv_kernels.__name__}
    exec(compile(changed.read_text(encoding="utf-8"), changed, "exec"), namespace)
    for name in ("forward", "backward"):
        monkeypatch.setattr(wkv_kernels, name, namespace[name])
    monkeypatch.setattr(proofs.warnings, "warn", lambda *given, **options: None)
    inputs = test_wkv.draw(9)
    with as_if_on("cuda"):
        assert "differs from" in wkv.unusable_reason(ops._plain, *inputs)
        made, _ = read(*inputs)
    torch.testing.assert_close(made, loop(*inputs)[0], rtol=1e-4, atol=1e-5)
