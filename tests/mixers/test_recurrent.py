from functools import partial

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers import _recurrent
from ordinate.mixers._recurrent import RecurrentMixer, RecurrentState
from ordinate.mixers.gru import Gru
from ordinate.mixers.lstm import Lstm
from ordinate.mixers.rnn import Rnn
from ordinate.schemes import NoPosition

KINDS = [Rnn, Gru, Lstm]


def at(where):
    return NoPosition().at(where)


def tokens(*shape):
    return torch.randn(*shape, 8, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_weights_are_as_documented(kind):
    cell = kind(width=8).cell
    weights, state = cell.get_parameter("weight_ih_l0").split(8), cell.get_parameter("weight_hh_l0").split(8)
    assert all(torch.allclose(gate @ gate.T, torch.eye(8), atol=1e-5) for gate in state)
    assert all(0.5 < gate.std() / (2 / 16) ** 0.5 < 1.5 for gate in weights)
    biases = torch.cat([cell.get_parameter("bias_ih_l0"), cell.get_parameter("bias_hh_l0")])
    expected = torch.zeros_like(biases)
    if kind is Lstm:
        expected[8:16] = 1
    assert torch.equal(biases, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_keeps_the_initial_weights_of_the_cell(kind):
    model = Decoder(Shape(vocabulary=5, width=8, heads=2, layers=2, scheme="none", mixer=kind.__name__.lower()))
    for block in model.blocks:
        gate = block.mixer.cell.weight_hh_l0[:8]
        assert torch.allclose(gate @ gate.T, torch.eye(8), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_bidirectional_reading_uses_both_directions(kind):
    mixer, x = kind(width=8).double(), tokens(2, 7)
    y, _ = mixer(x, at(Geometry.full(7)))
    forward, _ = mixer(x, at(Geometry.causal(7)))
    back, _ = mixer(x.flip(1), at(Geometry.causal(7)))
    with torch.no_grad():
        mixer.out.weight.copy_(mixer.out.weight.roll(4, 1))
    exchanged, _ = mixer(x.flip(1), at(Geometry.causal(7)))
    assert torch.allclose(y, forward + exchanged.flip(1), atol=1e-13)
    # without the exchange, a mirrored sequence gives the mirrored result
    assert not torch.allclose(y, forward + back.flip(1), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_and_its_mirror_image_give_different_outputs(kind):
    mixer, x = kind(width=8).double(), tokens(1, 7)
    where = at(Geometry.full(7))
    assert not torch.allclose(mixer(x, where)[0], mixer(x.flip(1), where)[0].flip(1), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_size_does_not_depend_on_the_length(kind):
    mixer = kind(width=8)
    sizes = {mixer(torch.randn(3, n, 8), at(Geometry.causal(n)))[1].h.shape for n in (1, 9)}
    assert sizes == {(3, 2 if kind is Lstm else 1, 8)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_float32_for_any_dtype(kind):
    mixer, x = kind(width=8).bfloat16(), torch.randn(2, 5, 8).bfloat16()
    y, state = mixer(x, at(Geometry.causal(5)))
    assert (y.dtype, state.h.dtype) == (torch.bfloat16, torch.float32)
    wide = kind(width=8)
    wide.load_state_dict({name: weight.float() for name, weight in mixer.state_dict().items()})
    assert torch.allclose(state.h, wide(x.float(), at(Geometry.causal(5)))[1].h, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        _, lowered = wide(x.float(), at(Geometry.causal(5)))
    assert torch.equal(lowered.h, wide(x.float(), at(Geometry.causal(5)))[1].h)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_tokens_keeps_its_state(kind):
    mixer, real = kind(width=8).double(), torch.tensor([[False, True, True], [False, False, False]])
    before = RecurrentState(torch.randn(2, mixer.state_vectors, 8, dtype=torch.float64))
    _, after = mixer.mix_sequences(tokens(2, 3) * real[..., None], at(Geometry.padded(real)), real, before)
    assert torch.equal(after.h[1], before.h[1])
    assert not torch.equal(after.h[0], before.h[0])


def test_reading_padding_is_detected(monkeypatch):
    mixer, real = Gru(width=8).double(), torch.tensor([[False, True, True]])
    x = tokens(1, 3) * real[..., None]
    with torch.no_grad():
        mixer.cell.bias_ih_l0.add_(1)
    held = mixer(x, at(Geometry.padded(real)))[0][:, 1:]
    alone = mixer(x[:, 1:], at(Geometry.causal(2)))[0]
    assert torch.allclose(held, alone, atol=1e-14)
    kept = RecurrentMixer._read
    monkeypatch.setattr(RecurrentMixer, "_read", lambda self, x, real, state: kept(self, x, None, state))
    assert not torch.allclose(mixer(x, at(Geometry.padded(real)))[0][:, 1:], alone, atol=1e-3)


@pytest.mark.parametrize("kind", [*KINDS, partial(Rnn, identity=True)])
def test_token_by_token_it_is_the_kernel_also_beside_padding(kind, monkeypatch):
    mixer, x = kind(width=8).double(), tokens(2, 5)
    before = RecurrentState(torch.randn(2, mixer.state_vectors, 8, dtype=torch.float64))
    wheres = [Geometry.causal(5), Geometry.full(5), Geometry.packed([2, 3]), Geometry.packed([2, 3], causal=False)]
    real = torch.tensor([[False, False, True, True, True], [False] * 5])

    def results():
        after = [mixer.mix_sequences(x, at(wheres[0]), None, before)[1].h]
        after += [mixer.mix_sequences(x * real[..., None], at(wheres[0]), real, before)[1].h]
        return after + [mixer(x, at(where))[0] for where in wheres]

    found = results()
    monkeypatch.setattr(_recurrent, "untraceable", lambda x: "it is asked to")
    for one, other in zip(results(), found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


# PyTorch loads decompositions for forward mode by a deprecated function
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_torch_func_pass_through_padding_and_parameters(kind):
    mixer, x = kind(width=8).double(), tokens(2, 5)
    packed, names = at(Geometry.packed([2, 3])), [name for name, _ in mixer.named_parameters()]

    def of(*weights):
        return functional_call(mixer, dict(zip(names, weights, strict=True)), (x, packed))[0]

    each = vmap(grad(lambda row: mixer(row[None], packed)[0].sin().sum()))(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(each, torch.autograd.grad(mixer(leaf, packed)[0].sin().sum(), leaf)[0])
    step, along = 1e-6, tokens(2, 5)
    slope = jvp(lambda x: mixer(x, packed)[0], (x,), (along,))[1]
    near = [mixer(x + side * step * along, packed)[0] for side in (1, -1)]
    torch.testing.assert_close(slope, (near[0] - near[1]) / (2 * step), rtol=1e-6, atol=1e-8)
    weights = [weight.detach() for weight in mixer.parameters()]
    many = vmap(of)(*(torch.stack([weight, 2 * weight]) for weight in weights))
    torch.testing.assert_close(many, torch.stack([of(*weights), of(*(2 * weight for weight in weights))]))
