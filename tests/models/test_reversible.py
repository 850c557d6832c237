import gc
import weakref
from contextlib import contextmanager

import pytest
import torch

from ordinate import Cache, Decoder, Shape
from ordinate.models.reversible import RandomState

SIZES = {"vocabulary": 11, "width": 16, "layers": 3, "heads": 4, "max_length": 64, "blocks": "reversible"}


def build(**choices):
    torch.manual_seed(1)
    return Decoder(Shape(**SIZES | choices)).double()


def ids(*shape):
    return torch.randint(0, 11, shape)


def gradients(model, text, cache=None, lowered=False):
    """Gradients of all parameters: with a cache by autograd, without one by inversion of the layers."""
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
        loss = (model(text, cache=cache) ** 2).sum()
    return torch.autograd.grad(loss, list(model.parameters()))


def differences(one, two):
    pairs = zip(one, two, strict=True)
    return max(((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in pairs)


CHOICES = [
    {},
    {"dropout": 0.3},
    {"scheme": "t5"},
    {"scheme": "learned"},
    {"scheme": "rope,t5,none"},
    {"scheme": "deberta", "norm": "layer", "feedforward": "swiglu"},
    {"layers": 1},
    {"mixer": "reformer:chunk_length=2,rounds=1,buckets=4", "dropout": 0.1},
    {"mixer": "gru", "scheme": "none"},
    {"mixer": "linear"},
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_undoing_gives_the_gradients_of_remembering(choices):
    model, text = build(**choices), ids(2, 9)
    assert differences(gradients(model, text), gradients(model, text, Cache())) < 1e-13


def test_the_streams_are_those_of_the_formula():
    model, text = build(scheme="none").eval(), ids(2, 7)
    taken = {}
    model.norm.register_forward_hook(lambda module, args, out: taken.update(x=args[0]))
    model(text)
    at = model.schemes[0].at(Cache().next_geometry(7))
    first = second = model.tokens(text)
    for block in model.blocks:
        first = first + block.mixer(block.mixer_norm(second), at)[0]
        second = second + block.feedforward(block.feedforward_norm(first))
    assert torch.allclose(taken["x"], (first + second) / 2, atol=1e-15, rtol=0)


def test_it_trains_like_any_model():
    model, text = build(scheme="t5"), ids(2, 9)
    expected = gradients(model, text)
    (model(text) ** 2).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert differences(found, expected) < 1e-13


def test_frozen_parameters_get_none():
    model, text = build(scheme="t5"), ids(2, 9)
    expected = dict(zip((name for name, _ in model.named_parameters()), gradients(model, text), strict=True))
    frozen = [name for name, _ in model.named_parameters() if ".mixer." in name or name.startswith("schemes")]
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    (model(text) ** 2).sum().backward()
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert parameter.grad is None
        else:
            assert torch.allclose(parameter.grad, expected[name], atol=1e-13)


def test_a_hook_of_a_parameter_acts_once():
    model, text = build(scheme="t5"), ids(2, 9)
    expected = gradients(model, text)
    for parameter in model.parameters():
        parameter.register_hook(lambda slope: 2 * slope)
    (model(text) ** 2).sum().backward()
    assert (
        differences([parameter.grad for parameter in model.parameters()], [2 * slope for slope in expected]) < 1e-13
    )


def test_parameters_of_functional_call_are_those_of_the_way_back():
    model, other, text = build(scheme="t5"), build(scheme="t5"), ids(2, 9)
    given = dict(other.named_parameters())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    (torch.func.functional_call(model, given, (text,)) ** 2).sum().backward()
    found = [parameter.grad for parameter in other.parameters()]
    assert differences(found, gradients(other, text)) < 1e-13
    assert all(parameter.grad is None for parameter in model.parameters())


def test_parameters_that_change_before_the_way_back_are_refused():
    model, text = build(), ids(2, 9)
    loss = model(text).sum()
    with torch.no_grad():
        model.blocks[1].mixer.out.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Held:
    """A tensor saved for the backward pass."""

    def __init__(self, x):
        self.x = x.detach()


def held(blocks, layers):
    """Bytes that a forward pass saves for the backward pass, without parameters."""
    model, text, alive = build(blocks=blocks, layers=layers, dropout=0.1), ids(2, 33), weakref.WeakSet()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def hold(x):
        kept = Held(x)
        alive.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda kept: kept.x):
        logits = model(text)
    gc.collect()
    kept = [part.x.untyped_storage() for part in alive]
    assert logits.requires_grad
    return sum({x.data_ptr(): x.nbytes() for x in kept if x.data_ptr() not in own}.values())


@pytest.mark.extended
def test_what_is_held_does_not_grow_with_depth():
    assert held("reversible", 8) == held("reversible", 2)
    assert held("plain", 8) > 3 * held("plain", 2)


def test_the_way_back_meets_the_numbers_of_the_way_there(monkeypatch):
    model, text = build(layers=24).float(), ids(2, 33)
    seen = []
    for block in model.blocks:
        kept = block.mixer_branch

        def mix_sequences(x, at, state=None, kept=kept):
            seen.append(x.detach().clone())
            return kept(x, at, state)

        monkeypatch.setattr(block, "mixer_branch", mix_sequences)
    model(text).sum().backward()
    assert len(seen) == 2 * 24
    assert all(torch.equal(there, back) for there, back in zip(seen, seen[::-1], strict=True))


def test_lowered_types_are_lowered_again():
    model, text = build().float(), ids(2, 9)
    undone, remembered = gradients(model, text, lowered=True), gradients(model, text, Cache(), lowered=True)
    assert differences(undone, remembered) < 1e-5
    assert differences(gradients(model, text), remembered) > 1e-4


def test_the_way_back_leaves_the_random_numbers_alone():
    model, text = build(dropout=0.3), ids(2, 9)
    logits = model(text)
    before = torch.get_rng_state()
    logits.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 0, 5]])
@torch.no_grad()
def test_piece_by_piece_is_the_same_as_at_once(pieces):
    model, text, cache, out, begin = build().eval(), ids(2, 9), Cache(), [], 0
    for piece in pieces:
        out.append(model(text[:, begin : begin + piece], cache=cache))
        begin += piece
    assert torch.allclose(torch.cat(out, 1), model(text), atol=1e-12, rtol=0)


def test_with_and_without_gradients_the_result_is_the_same():
    model, text = build(layers=6).float(), ids(2, 9)
    with torch.no_grad():
        without = model(text)
    assert torch.equal(model(text), without)


def test_a_gradient_of_a_gradient_is_refused():
    model, text = build(), ids(2, 9)
    with pytest.raises(
        ValueError, match="reversible layers have first derivatives only; got create_graph=True; build"
    ):
        torch.autograd.grad((model(text) ** 2).sum(), model.tokens.weight, create_graph=True)


def test_an_unknown_way_is_refused(untyped):
    with pytest.raises(ValueError, match=r"no blocks is named 'reverse'; .*did you mean 'reversible'"):
        build(blocks="reverse")


@contextmanager
def unwound(self):
    with torch.enable_grad():
        yield


@pytest.mark.parametrize("choices", [{"dropout": 0.3}, {}], ids=["numbers", "types"])
def test_the_tests_notice_a_way_back_in_another_moment(choices, monkeypatch):
    monkeypatch.setattr(RandomState, "restored", unwound)
    model, text = build(**choices).float(), ids(2, 9)
    lowered = not choices
    undone, remembered = gradients(model, text, None, lowered), gradients(model, text, Cache(), lowered)
    assert differences(undone, remembered) > 1e-4
