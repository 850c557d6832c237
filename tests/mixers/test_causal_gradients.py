"""Gradients of the first outputs beside later tokens whose own gradients overflow."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.mixers import Performer, Rwkv7, Softmax
from ordinate.mixers._causal_gradients import LARGE, tokens_read
from ordinate.mixers._mixer import Mixer
from ordinate.schemes import NoPosition
from ordinate.testing.mixer import MixerCase

TOKENS, PAST = 12, 6
NAMES = catalog.names("ordinate.mixers")


def mixer_of(name):
    case = MixerCase(catalog.load("ordinate.mixers", Mixer, name))
    if not (case.kind.causal and case.mixer().strictly_causal):
        pytest.skip("it has no strictly causal form")
    return case


def gradients(mix, x, read, parameters):
    """Gradients of the outputs that are read."""
    x = x.clone().requires_grad_()
    loss = mix(x)[:, read].float().square().sum()
    return [y for y in torch.autograd.grad(loss, [x, *parameters], allow_unused=True) if y is not None]


def assert_equal(found, exact):
    share = max(1e-5, 16 * torch.finfo(exact[0].dtype).eps)
    limit = share * max(y.abs().max().item() for y in exact)
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() <= limit


@pytest.mark.extended
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_mixer_in_low_precision_packed_and_padded(name, dtype):
    case = mixer_of(name)
    mixer, read = case.mixer(dtype), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    for where in (Geometry.packed([8, 4]), Geometry.padded(torch.arange(TOKENS) >= torch.tensor([[3], [0]]))):
        kept = read if where.batch_size == 1 else read[:PAST]
        x, scheme = case.tokens(2, TOKENS, dtype), case.scheme()
        x[:, PAST:8] = 0
        parameters = [y for y in mixer.parameters() if y.requires_grad]

        def mix(x, where=where, scheme=scheme):
            return mixer(x, scheme.at(where))[0]

        exact = gradients(mix, x, kept, parameters)
        for share in (0.5, 1e-3):
            x[:, PAST] = share * torch.finfo(dtype).max
            assert_equal(gradients(mix, x, kept, parameters), exact)


def case_of(value):
    """A mixer whose gradients overflow beside this number in its later tokens."""
    case = MixerCase(Rwkv7)
    mixer, x = case.mixer(torch.float32), case.tokens(2, TOKENS, torch.float32)
    x[:, PAST:] = value
    return mixer, x, lambda: case.scheme().at(Geometry.causal(TOKENS))


def plainly(mixer, at):
    return lambda x: mixer(x, at())[0]


def by_autocast(mixer, at):
    def mix(x):
        with torch.autocast("cpu"):
            return mixer(x, at())[0]

    return mix


def by_checkpoint(mixer, at):
    return lambda x: checkpoint(lambda x: mixer(x, at())[0], x, use_reentrant=False)


@pytest.mark.parametrize("wrapped", [plainly, by_autocast, by_checkpoint])
def test_under_autocast_and_checkpointing_too(wrapped):
    found, exact = (
        gradients(wrapped(mixer, at), x, slice(PAST), mixer.parameters()) for mixer, x, at in map(case_of, (1e12, 0))
    )
    assert_equal(found, exact)


def test_with_the_parameters_of_the_forward_pass():
    results = []
    for value in (1e12, 0.0):
        mixer, x, at = case_of(value)
        others = {name: (1.1 * y).detach().requires_grad_() for name, y in mixer.named_parameters()}

        def mix(x, mixer=mixer, others=others, at=at):
            return torch.func.functional_call(mixer, others, (x, at()))[0]

        results.append(gradients(mix, x, slice(PAST), others.values()))
    assert_equal(*results)


def test_many_gradients_at_once():
    results = []
    for value in (1e12, 0.0):
        mixer, x, at = case_of(value)
        x.requires_grad_()
        sums = mixer(x, at())[0][:, :PAST].sum((0, 2))
        results.append(torch.autograd.grad(sums, x, torch.eye(PAST), is_grads_batched=True))
    assert_equal(*results)


def test_the_same_random_numbers_are_drawn_again():
    results = []
    mixer = Softmax(width=24, heads=2, dropout=0.3).train()
    for value in (1e30, 0.0):
        torch.manual_seed(3)
        x = torch.randn(2, TOKENS, 24)
        x[:, PAST:] = value
        at = NoPosition().at(Geometry.causal(TOKENS))
        results.append(gradients(lambda x, at=at: mixer(x, at)[0], x, slice(PAST), mixer.parameters()))
        results[-1].append(torch.rand(1))
    assert_equal(*results)


def test_the_state_has_gradients_too():
    results = []
    for value in (1e12, 0.0):
        mixer, x, _ = case_of(value)
        scheme = MixerCase(Rwkv7).scheme()
        first = x[:, :4].clone().requires_grad_()
        _, state = mixer(first, scheme.at(Geometry.causal(4)))
        out, _ = mixer(x[:, 4:], scheme.at(Geometry.causal(TOKENS - 4, cached=4)), state)
        results.append(torch.autograd.grad(out[:, : PAST - 4].square().sum(), first))
    assert_equal(*results)


def test_passes_of_training_are_counted_once():
    mixer, x = Performer(width=24, heads=2).train(), torch.randn(1, TOKENS, 24)
    x[:, PAST:] = 1e30
    x.requires_grad_()
    out, _ = mixer(x, NoPosition().at(Geometry.causal(TOKENS)))
    out[:, :PAST].sum().backward()
    assert mixer.passes == 1
    assert x.grad.isfinite().all()


def test_tokens_after_the_last_output_with_a_gradient_are_not_read():
    upstream = torch.zeros(2, 5, 3)
    upstream[0, 2, 1] = float("nan")
    upstream[1, 0] = 1.0
    assert tokens_read(upstream, None).tolist() == [[True] * 3 + [False] * 2, [True] + [False] * 4]
    documents = torch.tensor([[7, 7, 7, 7, -1], [2, 0, 0, 2, 2]])
    upstream[1, 3] = 1.0
    assert tokens_read(upstream, documents).tolist() == [[True] * 3 + [False] * 2, [True, False, False, True, False]]


def test_usual_tokens_cost_nothing(monkeypatch):
    mixer, x, at = case_of(LARGE[torch.float32] - 1)
    monkeypatch.setattr("ordinate.mixers._causal_gradients._CausalGradients.apply", None)
    x.requires_grad_()
    mixer(x, at())[0].sum().backward()
