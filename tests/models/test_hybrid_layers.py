"""Models with linear attention in some layers and softmax attention in the others."""

from dataclasses import replace

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape

MIXED = "gated_deltanet:heads=4,key_width=5,variant.key_heads=2,variant.value_width=7"
MIXED += ",softmax:variant.output_gate=true,variant.qk_norm=true"
IDS = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    shape = Shape(29, 16, 4, 2, kv_heads=1, head_width=6, mixer=MIXED, scheme="none,rope:rotary_dim=4")
    made = Decoder(shape).double().eval()
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def test_the_head_width_is_that_of_the_layers_with_attention(model):
    assert model.blocks[1].mixer.head_width == 6
    assert model.blocks[1].mixer.output_gate.weight.shape == (12, 16)
    assert model.blocks[0].mixer.sizes.value_width == 7


@torch.no_grad()
def test_a_text_token_by_token_is_what_it_is_at_once(model):
    cache = Cache()
    steps = torch.cat([model(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, model(IDS), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("first", [True, False])
@torch.no_grad()
def test_padding_on_either_side_changes_nothing_and_the_cache_goes_on(model, first):
    real = torch.arange(9) >= 4 if first else torch.arange(9) < 5
    text = IDS[:1, :5]
    padded = torch.zeros(1, 9, dtype=torch.long).masked_scatter(real, text)
    whole = model(IDS[:1, :6])
    out = model(padded, Geometry.padded(real[None]))
    torch.testing.assert_close(out[:, real], whole[:, :5], rtol=1e-11, atol=1e-11)
    cache = Cache()
    model(padded, Geometry.padded(real[None]), cache)
    torch.testing.assert_close(model(IDS[:1, 5:6], cache=cache), whole[:, 5:], rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_packed_texts_are_as_alone(model):
    out = model(IDS[:1], Geometry.packed([4, 7]))
    alone = torch.cat([model(IDS[:1, :4]), model(IDS[:1, 4:])], 1)
    torch.testing.assert_close(out, alone, rtol=1e-11, atol=1e-11)


def test_saved_and_read_again_it_is_the_same(model, tmp_path):
    model = model.float()
    model.save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path).eval()
    assert again.shape == model.shape
    assert torch.equal(again(IDS), model(IDS))


@torch.no_grad()
def test_norms_of_each_layer_are_placed_by_its_norm_position(tmp_path):
    torch.manual_seed(0)
    positions = ("pre", "res_post", "peri", "post")
    model = Decoder(Shape(29, 16, 4, 2, norm="layer", scheme="none", norm_position=positions)).double().eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.normal_()
    x, at = model.tokens(IDS), model.schemes[0].at(Geometry.causal(11))
    first, second, third, fourth = model.blocks
    x = x + first.mixer(first.mixer_norm(x), at)[0]
    x = x + first.feedforward(first.feedforward_norm(x))
    x = x + second.mixer_out_norm(second.mixer(x, at)[0])
    x = x + second.feedforward_out_norm(second.feedforward(x))
    x = x + third.mixer_out_norm(third.mixer(third.mixer_norm(x), at)[0])
    x = x + third.feedforward_out_norm(third.feedforward(third.feedforward_norm(x)))
    x = fourth.mixer_norm(x + fourth.mixer(x, at)[0])
    x = fourth.feedforward_norm(x + fourth.feedforward(x))
    # post-norm layers end with a norm already
    torch.testing.assert_close(model(IDS), x @ model.tokens.weight.T, rtol=1e-11, atol=1e-11)
    model = model.float()
    model.save_pretrained(tmp_path)
    assert Decoder.from_pretrained(tmp_path).shape.norm_position == positions


def test_norm_positions_that_are_all_the_same_are_one():
    assert Shape(29, layers=2, norm_position=("pre", "pre")).norm_position == "pre"
    assert Shape(29, layers=4, norm_position=("pre", "post")).layer_norm_positions == ["pre", "post"] * 2
    assert Shape(29, layers=4, norm_position=("pre", "post")).with_defaults().norm_position == ("pre", "post") * 2


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"norm_position": ("pre", "post", "pre")}, "the number of norm positions must divide the number of layers"),
        ({"norm_position": ()}, "the number of norm positions must divide the number of layers; got 0 for 4"),
        ({"norm_position": ("pre", "prae")}, "no norm_position is named 'prae'.*did you mean 'pre'"),
        ({"norm_position": ("pre", "post"), "first_norm": False}, "first_norm=False needs pre-norm layers"),
        ({"norm_position": ("pre", "peri"), "blocks": "reversible"}, "reversible blocks need pre-norm layers"),
        (
            {"norm_position": ("pre", "parallel"), "feedforward": "none", "bias": ()},
            "need a feedforward; got norm_position='parallel' and 'pre'",
        ),
    ],
)
def test_norm_positions_that_do_not_fit_are_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        Shape(29, layers=4, **choices)


def test_defaults_leave_key_heads_out_where_a_mixer_has_heads_of_its_own():
    shape = Shape(vocabulary=11, width=16, layers=2, heads=2, head_width=4, mixer="softmax,softmax:heads=3")
    model, full = Decoder(shape), shape.with_defaults()
    assert full.kv_heads is None
    # a mutant: the key heads of the model, of which the second layer has three
    sizes = [Decoder(each).blocks[1].mixer.project.weight.shape for each in (full, replace(full, kv_heads=1))]
    assert sizes[0] == model.blocks[1].mixer.project.weight.shape != sizes[1]
    assert Shape(vocabulary=11, heads=2).with_defaults().kv_heads == 2
