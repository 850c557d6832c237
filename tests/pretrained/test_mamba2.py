"""Published Mamba-2 models: what is particular to them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Mamba2Config, Mamba2ForCausalLM

from ordinate import Cache, Decoder, Geometry, Shape, load, save
from ordinate.pretrained import verify

SIZES = {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 4, "state_size": 6}
SIZES |= {"n_groups": 2, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
IDS = torch.randint(29, (2, 9), generator=torch.Generator().manual_seed(0))


def written(folder, **settings):
    """A model of transformers with numbers that show, in a folder."""
    torch.manual_seed(0)
    model = Mamba2ForCausalLM(Mamba2Config(**SIZES, **settings)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def change(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize("limits", [(0.0, float("inf")), (0.3, 0.9), (-1.0, 0.5), (0.5, 0.3)])
@torch.no_grad()
def test_step_sizes_are_limited_in_the_whole_text_and_token_by_token(tmp_path, limits):
    there = written(tmp_path, time_step_limit=limits)
    here = load(tmp_path)
    torch.testing.assert_close(here(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)
    cache = Cache()
    steps = torch.cat([here(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, here(IDS), rtol=1e-4, atol=1e-4)
    save(here, tmp_path / "again", "mamba2")
    again = Mamba2ForCausalLM.from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(again(IDS).logits, there(IDS).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("limits", "note"),
    [
        ((0.0, float("inf")), ""),
        ((0.3, 0.9), "transformers leaves the limits of step sizes out for single tokens: it"),
    ],
)
def test_decoding_is_not_judged_against_steps_without_limits(tmp_path, limits, note):
    written(tmp_path, time_step_limit=limits)
    (check,) = verify(tmp_path, checks=["decoding"]).checks
    assert check.state == "agrees"
    assert check.note.startswith(note)
    assert bool(note) is bool(check.note)
    # single tokens there, whole texts there, and both ways here
    assert [one.judged for one in check.differences] == [not note, True, True]


@torch.no_grad()
def test_padding_on_the_left_is_zeroed_as_there(tmp_path):
    there = written(tmp_path)
    real = torch.arange(9) >= torch.tensor([[4], [0]])
    ours, theirs = load(tmp_path)(IDS, Geometry.padded(real)), there(IDS, attention_mask=real.long()).logits
    torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_token_table_of_early_files_is_read(tmp_path):
    there = written(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["backbone.embedding.weight"] = tensors.pop("backbone.embeddings.weight")
    save_file(tensors, path)
    torch.testing.assert_close(load(tmp_path)(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden_act": "prelu"}, "no hidden_act is named 'prelu'; there are"),
        ({"expand": 3}, "num_heads x head_dim must be expand x hidden_size; got 8 x 4 and 48"),
        ({"n_groups": 3}, "n_groups must divide num_heads; got 3 and 8"),
        ({"time_step_limit": [0.5, -0.3]}, "time_step_limit must be two numbers, of which"),
        ({"time_step_limit": [0.5]}, "time_step_limit must be two numbers, of which"),
        ({"time_step_limit": ["a", "b"]}, "time_step_limit must be two numbers, of which"),
        ({"time_step_limit": 3}, "time_step_limit"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixer": "softmax", "feedforward": "none", "norm_eps": 1e-5}, "requires the mixer mamba2"),
        ({"mixer": "mamba2:states=4", "norm_eps": 1e-5}, "requires feedforward none"),
        ({"mixer": "mamba2:states=4", "feedforward": "none", "norm_eps": 1e-3}, "one epsilon of all norms"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    model = Decoder(Shape(vocabulary=29, width=16, layers=2, scheme="none", **options))
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, "mamba2")
