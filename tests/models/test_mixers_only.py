"""Layers that have a mixer and no feed-forward."""

import pytest
import torch

from ordinate import Cache, Decoder, Shape
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.expert_options import ExpertOptions

IDS = torch.randint(19, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("mixer", "scheme"), [("mamba2:states=4", "none"), ("softmax", "rope")])
@torch.no_grad()
def test_a_layer_adds_its_mixer_of_the_normalised_stream_only(mixer, scheme):
    model = Decoder(Shape(vocabulary=19, width=16, layers=2, mixer=mixer, scheme=scheme, feedforward="none")).eval()
    assert not any("feedforward" in name for name in model.state_dict())
    x = model.embed_tokens(IDS)
    at = model.bind_schemes(Cache().next_geometry(9))[0]
    for block in model.blocks:
        x = x + block.mixer(block.mixer_norm(x), at)[0]
    torch.testing.assert_close(model.hidden_states(IDS), model.norm(x))
    cache = Cache()
    steps = torch.cat([model(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, model(IDS), rtol=1e-4, atol=1e-5)


SOME = {"vocabulary": 19, "width": 16, "layers": 4, "mixer_only_layers": (2, 0)}


@torch.no_grad()
def test_some_layers_have_no_feedforward():
    model = Decoder(Shape(**SOME, experts=ExpertOptions(3, dense_layers=(1,)))).eval()
    assert [block.feedforward is None for block in model.blocks] == [True, False, True, False]
    assert [type(block.feedforward).__name__ for block in model.blocks[1::2]] == ["FeedForward", "Experts"]
    assert not any(name.startswith(("blocks.0.feed", "blocks.2.feed")) for name in model.state_dict())
    x = model.embed_tokens(IDS)
    at = model.bind_schemes(Cache().next_geometry(9))[0]
    for block in model.blocks:
        x = x + block.mixer(block.mixer_norm(x), at)[0]
        if block.feedforward is not None:
            x = x + block.feedforward(block.feedforward_norm(x))
    torch.testing.assert_close(model.hidden_states(IDS), model.norm(x))
    cache = Cache()
    steps = torch.cat([model(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, model(IDS), rtol=1e-4, atol=1e-5)


def test_output_projections_are_smaller_with_the_number_of_branches():
    assert (Shape(**SOME).branches, Shape(19, 16, 4, feedforward="none").branches, Shape(19, 16, 4).branches) == (
        6,
        4,
        8,
    )
    with torch.no_grad():
        narrow = Decoder(Shape(**SOME | {"width": 128})).blocks[1].feedforward.narrow.weight
    torch.testing.assert_close(narrow.std(), torch.tensor(0.02 / 6**0.5), rtol=0.02, atol=0)


def test_it_is_saved_and_read_again_with_some_layers(tmp_path):
    model = Decoder(Shape(**SOME)).eval()
    model.save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again.shape.with_defaults().mixer_only_layers == (0, 2)
    assert torch.equal(again(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixer_only_layers": (4,)}, r"different layers from 0 to 3, and leave one with a feed-forward; got \(4,\)"),
        ({"mixer_only_layers": (1, 1)}, r"different layers from 0 to 3, .*; got \(1, 1\)"),
        ({"mixer_only_layers": (0, 1, 2, 3)}, "leave one with a feed-forward; got .*feedforward='none' is for all"),
        ({"feedforward": "none"}, "options of the feed-forward need one; got mixer_only_layers with"),
        ({"experts": ExpertOptions(3, dense_layers=(0,))}, "dense_layers of the experts have a feed-forward, and"),
        ({"experts": ExpertOptions(3, dense_layers=(1, 3))}, "and leave a layer with experts; got .*correct both"),
        (
            {"norm_position": "parallel"},
            "parallel and reversible layers need a .*got norm_position='parallel' in lay",
        ),
        ({"norm_position": ("pre", "pre", "shared", "pre")}, "got norm_position='shared' in layer 2"),
        ({"blocks": "reversible"}, "parallel and reversible layers need a feed-forward; got 'reversible'"),
    ],
)
def test_layers_that_need_a_feedforward_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Shape(**SOME | options)


def test_an_encoder_decoder_has_a_feedforward_in_all_layers():
    with pytest.raises(ValueError, match=r"an encoder-decoder have a feed-forward; got mixer_only_layers=\(0,\)"):
        EncoderDecoderShape(19, 16, 2, mixer_only_layers=(0,), cross_mixer="softmax")


def test_it_is_saved_and_read_again(tmp_path):
    model = Decoder(Shape(vocabulary=19, width=16, layers=2, feedforward="none")).eval()
    model.save_pretrained(tmp_path)
    assert torch.equal(Decoder.from_pretrained(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hidden": 8}, "options of the feed-forward need one; got hidden with feedforward='none'"),
        ({"bias": ("norm", "feedforward")}, "got bias='feedforward' with feedforward='none'"),
        ({"norm_position": "parallel"}, "parallel and reversible layers need a feedforward"),
        ({"norm_position": "shared"}, "parallel and reversible layers need a feedforward"),
        ({"blocks": "reversible"}, "parallel and reversible layers need a feedforward"),
    ],
)
def test_options_without_effect_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Shape(vocabulary=19, feedforward="none", **options)
