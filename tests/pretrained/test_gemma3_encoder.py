"""Gemma 3 with `use_bidirectional_attention`: windows of both sides, padding of either side, and what is refused."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ordinate import Encoder, Geometry
from ordinate.pretrained import verify
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]["gemma3_text_encoder"][0]
IDS = torch.randint(3, 19, (2, 40), generator=torch.Generator().manual_seed(0))


def written(folder, **told):
    """A small model of transformers whose numbers all show, and its folder."""
    torch.manual_seed(0)
    model = transformers.Gemma3TextModel(transformers.Gemma3TextConfig(**(FIELDS | told))).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def near(out, expected):
    assert (out - expected).abs().max() < 2e-5 * expected.abs().max()


@pytest.mark.parametrize(("size", "window"), [(2, 2), (3, 2), (8, 5), (9, 5), (64, 33)])
@torch.no_grad()
def test_windows_reach_to_both_sides(size, window, tmp_path):
    theirs = written(tmp_path, sliding_window=size)
    # transformers writes an even number
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"sliding_window": size}))
    model = load(tmp_path)
    assert isinstance(model, Encoder)
    assert model.shape.sliding_windows == (window, None)
    near(model(IDS), theirs(IDS).last_hidden_state)
    if window < 20:
        wider = Encoder(replace(model.shape, sliding_windows=(window + 1, None)))
        wider.load_state_dict(model.state_dict())
        assert (wider(IDS) - model(IDS)).abs().max() > 1e-3
    save(model, tmp_path / "again", "gemma3_text_encoder")
    again = transformers.AutoModel.from_pretrained(tmp_path / "again").eval()
    assert again.config.use_bidirectional_attention
    near(again(IDS).last_hidden_state, model(IDS))
    assert load(tmp_path / "again").shape == model.shape


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_is_not_seen(side, tmp_path):
    theirs, places = written(tmp_path, sliding_window=8), torch.arange(40)
    real = torch.stack([places >= 13 if side == "left" else places < 27, places >= 0])
    out = load(tmp_path)(IDS, Geometry.padded(real, causal=False))
    expected = theirs(IDS, attention_mask=real.long()).last_hidden_state
    near(out[real], expected[real])
    assert (out[~real] == 0).all()


@pytest.mark.extended
def test_it_is_verified(tmp_path):
    written(tmp_path, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    found = verify(tmp_path)
    assert found.agrees, found.to_dict()


@pytest.mark.parametrize(
    ("told", "match"),
    [
        (
            {"architectures": ["Gemma3ForCausalLM"]},
            "a gemma3_text with use_bidirectional_attention is read without a head, as a Gemma3TextModel; "
            "config.json names a Gemma3ForCausalLM; load another checkpoint",
        ),
        ({"sliding_window": 1}, "sliding_window of a gemma3_text with use_.* must be above 1; got 1; load another"),
        ({"sliding_window": None}, "sliding_window of a gemma3_text with use_.* must be above 1; got None; load"),
        (
            {"use_bidirectional_attention": None},
            "gemma3_text is supported with use_bidir.*=True only; got False; load",
        ),
        ({"layer_types": ["chunked_attention"] * 2}, "got layer_types with chunked_attention"),
    ],
)
def test_what_it_does_not_have_is_refused(told, match):
    with pytest.raises(ValueError, match=match):
        family_of("gemma3_text_encoder").read_config(FIELDS | told, ())


@torch.no_grad()
def test_a_window_of_the_token_alone_is_not_saved(tmp_path):
    written(tmp_path)
    shape = replace(load(tmp_path).shape, sliding_windows=(1, None))
    with pytest.raises(ValueError, match="has windows of several tokens; got sliding_windows of 1; use save_"):
        save(Encoder(shape), tmp_path / "again", "gemma3_text_encoder")
