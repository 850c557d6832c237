"""Threads that use one scheme: a backward pass leaves it as it is."""

import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ordinate import Decoder, Geometry, Shape, attend
from ordinate.attention import ScoreOptions
from ordinate.attention.backends import custom_formula, row_blocks
from ordinate.core.replaced_parameters import replaced
from ordinate.mixers import _recurrent
from ordinate.schemes import T5, Fire, NoPosition, Shaw
from ordinate.testing.backend import random_qkv

WHERE = Geometry.causal(11)
CASES = {
    "row_blocks": lambda: Shaw(head_width=8),
    "row_blocks with a bias": lambda: T5(heads=4),
    "custom_formula": lambda: Fire(heads=4),
}


@pytest.fixture(autouse=True)
def _every_size(monkeypatch):
    monkeypatch.setattr(row_blocks, "MIN_PAIRS", 1)
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 30)


def attention(name, scheme, q, k, v):
    backend, _, _ = name.partition(" ")
    given = {"score_options": ScoreOptions(softcap=2.0)} if backend == "custom_formula" else {}
    return attend(q, k, v, scheme.at(WHERE), backend=backend, **given)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_scheme_is_not_changed_during_its_backward_pass(name, twice, monkeypatch):
    scheme, seen = CASES[name](), []
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    before = list(scheme.parameters())
    kind = type(scheme)
    for hook in ("bias", "content_bias"):
        own = getattr(kind, hook)

        def watched(self, *given, own=own):
            seen.append([x is y for x, y in zip(scheme.parameters(), before, strict=True)])
            return own(self, *given)

        monkeypatch.setattr(kind, hook, watched)
    found = torch.autograd.grad(attention(name, scheme, q, k, v).sum(), [q, *before], create_graph=twice)
    if twice:
        found[0].square().sum().backward()
    assert seen
    assert all(map(all, seen))


@pytest.mark.extended
@pytest.mark.parametrize("name", CASES)
def test_threads_share_a_scheme(name):
    scheme, found, failed = CASES[name](), [], []
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    learned = [q, k, v, *scheme.parameters()]

    def gradients():
        return torch.autograd.grad(attention(name, scheme, q, k, v).square().sum(), learned)

    def work():
        try:
            found.extend(gradients() for _ in range(20))
        except Exception as error:
            failed.append(error)

    exact, threads = gradients(), [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(found) == 60
    for one in found:
        torch.testing.assert_close(one, exact)
    assert all(x is y for x, y in zip(scheme.parameters(), learned[3:], strict=True))


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_a_cell_is_not_changed_while_it_runs(name, monkeypatch):
    mixer = Decoder(Shape(vocabulary=9, width=16, layers=1, heads=2, mixer=name, scheme="none")).blocks[0].mixer
    x = torch.randn(2, 11, 16)
    exact, _ = mixer(x, NoPosition().at(WHERE))
    before, seen = list(mixer.to(torch.bfloat16).cell.parameters()), []

    run = _recurrent._run

    def watch(*given):
        seen.append([x is y for x, y in zip(mixer.cell.parameters(), before, strict=True)])
        return run(*given)

    monkeypatch.setattr(_recurrent, "_run", watch)
    y, _ = mixer(x.bfloat16(), NoPosition().at(WHERE))
    assert seen
    assert all(map(all, seen))
    torch.testing.assert_close(y.float(), exact, rtol=2e-2, atol=2e-2)


def test_operations_are_counted():
    q, k, v = random_qkv(WHERE, dtype=torch.float32)
    for name, make in CASES.items():
        with FlopCounterMode(display=False) as counter:
            attention(name, make(), q, k, v).sum().backward()
        assert counter.get_total_flops() > 0


def test_tied_parameters_are_replaced_together():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    new = [torch.full_like(x, place) for place, x in enumerate(module.parameters())]
    other = replaced(module, new)
    assert other[0].weight is other[1].weight is new[0]
    assert other[1].bias is new[2]
    assert module[0].weight is module[1].weight is not new[0]
    with pytest.raises(ValueError, match="shorter"):
        replaced(module, new[:2])
