"""Layers that have a mixer and no feed-forward."""

import pytest
import torch

from ordinate import Cache, Decoder, Shape

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
