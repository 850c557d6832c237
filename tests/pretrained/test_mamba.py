"""Published Mamba and Falcon-Mamba models: what is particular to them."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from ordinate import Cache, Decoder, Geometry, Shape, load, save
from ordinate.mixers import MambaOptions
from ordinate.pretrained.verification.theirs import with_cache

SIZES = {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 6}
SIZES |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
IDS = torch.randint(29, (2, 9), generator=torch.Generator().manual_seed(0))
NAMES = {"mamba": "Mamba", "falcon_mamba": "FalconMamba"}


def written(family, folder, **settings):
    """A model of transformers with numbers that show, in a folder."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{NAMES[family]}Config")(**SIZES, **settings)
    model = getattr(transformers, f"{NAMES[family]}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def change(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize("family", NAMES)
@torch.no_grad()
def test_a_text_token_by_token_and_after_padding_has_the_logits_of_transformers(tmp_path, family):
    there = written(family, tmp_path, conv_kernel=3, time_step_rank=3)
    here, cache = load(tmp_path), Cache()
    torch.testing.assert_close(here(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)
    steps = torch.cat([here(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, here(IDS), rtol=1e-4, atol=1e-4)
    real = torch.arange(9) >= torch.tensor([[4], [0]])
    ours, theirs = here(IDS, Geometry.padded(real)), there(IDS, attention_mask=real.long()).logits
    torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", NAMES)
@torch.no_grad()
def test_several_tokens_behind_a_cache_continue_the_text_which_transformers_starts_anew(tmp_path, family):
    there = written(family, tmp_path)
    here, cache = load(tmp_path), Cache()
    pieces = torch.cat([here(piece, cache=cache) for piece in IDS.split([4, 3, 2], 1)], 1)
    torch.testing.assert_close(pieces, there(IDS).logits, rtol=1e-4, atol=1e-4)
    _, kept = with_cache(there, None, input_ids=IDS[:, :4])
    came, _ = with_cache(there, kept, input_ids=IDS[:, 4:])
    assert (came.logits - there(IDS).logits[:, 4:]).abs().max() > 0.01


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize(("settings", "channels"), [({}, 32), ({"expand": 3}, 48), ({"intermediate_size": 20}, 20)])
@torch.no_grad()
def test_channels_are_those_of_the_file_or_follow_from_expand(tmp_path, family, settings, channels):
    there = written(family, tmp_path, **settings)
    (tmp_path / "config.json").write_text(
        json.dumps({**SIZES, **settings, "architectures": [type(there).__name__], "model_type": family})
    )
    here = load(tmp_path)
    assert here.blocks[0].mixer.skip.numel() == channels
    torch.testing.assert_close(here(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)
    save(here, tmp_path / "again", family)
    again = type(there).from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(again(IDS).logits, there(IDS).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_norms_of_a_falcon_mamba_have_the_epsilon_of_the_file(tmp_path):
    there = written("falcon_mamba", tmp_path, mixer_rms_eps=0.3)
    here = load(tmp_path)
    assert here.blocks[0].mixer.variant == MambaOptions(norm="plain", norm_eps=0.3)
    torch.testing.assert_close(here(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_token_table_of_early_files_is_read(tmp_path):
    there = written("mamba", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["backbone.embedding.weight"] = tensors.pop("backbone.embeddings.weight")
    save_file(tensors, path)
    torch.testing.assert_close(load(tmp_path)(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden_act": "prelu"}, "no hidden_act is named 'prelu'; there are"),
        ({"time_step_rank": "many"}, "time_step_rank must be a whole number above zero, or 'auto'; got 'many'"),
        ({"time_step_rank": 0}, "time_step_rank must be a whole number above zero, or 'auto'; got 0"),
        ({"time_step_rank": 1.5}, "time_step_rank in config.json must be"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written("mamba", tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


@pytest.mark.parametrize(
    ("family", "options", "match"),
    [
        ("mamba", {"mixer": "mamba2:states=4", "feedforward": "none"}, "a mamba requires the mixer mamba in all"),
        ("mamba", {"mixer": "mamba"}, "a mamba requires feedforward none; got"),
        ("mamba", {"mixer": "mamba:variant.norm=plain", "feedforward": "none"}, "variant.norm=none; got plain"),
        ("falcon_mamba", {"mixer": "mamba", "feedforward": "none"}, "variant.norm=plain; got none"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, family, options, match):
    model = Decoder(Shape(vocabulary=29, width=16, layers=2, scheme="none", **options))
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, family)
