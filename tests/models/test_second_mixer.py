"""Layers with two mixers, whose outputs are added."""

from dataclasses import replace

import pytest
import torch

from ordinate import Cache, Decoder, Encoder, EncoderShape, Geometry, Shape, generate
from ordinate.models.fixed_cache import check_fixed_size

MAMBA = "mamba2:states=6,head_dim=8,variant.norm=false"
SHAPE = Shape(29, 16, 2, 2, mixer="softmax", second_mixer=MAMBA)
IDS = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))


def made(**options):
    torch.manual_seed(0)
    model = Decoder(replace(SHAPE, **options)).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def model():
    return made()


def near(out, expected):
    torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("position", ["pre", "post", "parallel", "shared"])
def test_a_layer_adds_the_outputs_of_both_mixers(position):
    block = made(norm_position=position).blocks[0]
    x = torch.randn(2, 7, 16, dtype=torch.float64, requires_grad=True)
    at = made().bind_schemes(Geometry.causal(7))[0]
    n = x if position == "post" else block.mixer_norm(x)
    mixed = block.mixer(n, at)[0] + block.second_mixer(n, at)[0]
    if position == "post":
        y = block.mixer_norm(x + mixed)
        expected = block.feedforward_norm(y + block.feedforward(y))
    elif position == "pre":
        expected = x + mixed + block.feedforward(block.feedforward_norm(x + mixed))
    else:
        expected = x + mixed + block.feedforward(n if position == "shared" else block.feedforward_norm(x))
    out, asked = block(x, at)[0], torch.randn(2, 7, 16, dtype=torch.float64)
    near(out, expected)
    leaves = [x, *block.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(out, leaves, asked), torch.autograd.grad(expected, leaves, asked), strict=True
    ):
        near(ours, theirs)


def test_the_scheme_is_that_of_the_first_mixer_only():
    model = made(mixer="linear", second_mixer="softmax", scheme="none")
    other = made(mixer="softmax", second_mixer="softmax", scheme="rope")
    assert type(other.blocks[0].without_positions).__name__ == "NoPosition"
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    block, at = other.blocks[0], other.bind_schemes(Geometry.causal(6))[0]
    none = model.bind_schemes(Geometry.causal(6))[0]
    near(block.mix(x, at)[0], block.mixer(x, at)[0] + block.second_mixer(x, none)[0])
    assert not torch.allclose(block.second_mixer(x, at)[0], block.second_mixer(x, none)[0])


@torch.no_grad()
def test_a_text_token_by_token_is_what_it_is_at_once_and_rows_of_a_cache_are_selected(model):
    cache = Cache()
    steps = torch.cat([model(token, cache=cache) for token in IDS[:, :8].split(1, 1)], 1)
    near(steps, model(IDS)[:, :8])
    swapped = cache.select_rows(torch.tensor([1, 0]))
    assert swapped.states[0].batch_size == 2
    near(model(IDS[:, 8:].flip(0), cache=swapped), model(IDS)[:, 8:].flip(0))
    filled = cache.states[0].fill_rows(torch.tensor([True, False]), 0.0)
    assert (filled.first.k[0] == 0).all()
    assert (filled.second.matrices[0] == 0).all()
    assert filled.first.k[1].equal(cache.states[0].first.k[1])


@torch.no_grad()
@pytest.mark.parametrize("first", [True, False])
def test_padding_on_either_side_changes_nothing_and_packed_texts_are_as_alone(model, first):
    real = torch.arange(9) >= 4 if first else torch.arange(9) < 5
    padded = torch.zeros(1, 9, dtype=torch.long).masked_scatter(real, IDS[:1, :5])
    near(model(padded, Geometry.padded(real[None]))[:, real], model(IDS[:1, :5]))
    packed = model(IDS[:1], Geometry.packed([4, 7]))
    near(packed, torch.cat([model(IDS[:1, :4]), model(IDS[:1, 4:])], 1))


def test_saved_and_read_again_it_is_the_same(model, tmp_path):
    model = model.float()
    model.save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again.shape == model.shape
    assert torch.equal(again(IDS), model(IDS))


def test_reversible_layers_have_both_mixers_too():
    model = made(blocks="reversible")
    model(IDS).sum().backward()
    assert all(parameter.grad is not None for parameter in model.blocks[0].second_mixer.parameters())


def test_factors_of_the_feedforward_are_those_of_its_gate_and_of_its_output():
    options = {"feedforward": "swiglu", "bias": ("norm", "feedforward")}
    inner = made(**options, feedforward_scales=(0.5, -2.0)).blocks[0].feedforward
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    gate, value = inner.widen(x).chunk(2, -1)
    near(inner(x), -2 * inner.narrow(torch.nn.functional.silu(0.5 * gate) * value))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"second_mixer": "mamba3"}, "mamba3"),
        ({"second_mixer": "softmax,mamba2,linear"}, "number of second mixers must divide the number of layers"),
        ({"feedforward_scales": (1.0,)}, "feedforward_scales must be two finite numbers"),
        ({"feedforward_scales": (1.0, float("inf"))}, "feedforward_scales must be two finite numbers"),
        ({"feedforward_scales": (2.0, 1.0), "feedforward": "none"}, "feedforward_scales need a feedforward"),
    ],
)
def test_what_does_not_fit_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Decoder(replace(SHAPE, **options))


def test_both_mixers_must_have_the_form_that_the_model_needs(model):
    with pytest.raises(ValueError, match="mixer 'linformer' has none"):
        Decoder(replace(SHAPE, second_mixer="linformer"))
    with pytest.raises(ValueError, match="has none"):
        Encoder(EncoderShape(29, 16, 2, 2, second_mixer="block_linformer"))
    with pytest.raises(ValueError, match="layer 0 has a second mixer"):
        check_fixed_size(model)
    assert len(list(generate(model, IDS, 3, temperature=0))) == 3
