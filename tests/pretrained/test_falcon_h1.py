"""Published Falcon-H1 models: what is particular to attention and Mamba-2 beside each other, with factors."""

import runpy
from pathlib import Path

import pytest
import torch

from ordinate import Decoder, Shape, load, save

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, written, read_there, change, near = (MIXED[name] for name in ("IDS", "written", "read_there", "change", "near"))
MAMBA = "mamba2:states=6,groups=2,taps=3,head_dim=4,variant.norm=false"
PLAIN = {"attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0}
BIASES = {"attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mamba_rms_norm": True},
        {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
        {"mamba_d_ssm": None, "mamba_expand": 3, "tie_word_embeddings": True},
        {"time_step_limit": [0.3, 0.9], "hidden_act": "gelu"},
        PLAIN | BIASES | {"mamba_conv_bias": False},
        {"mlp_multipliers": None, "ssm_multipliers": None, "attention_out_multiplier": 0.0},
    ],
)
@torch.no_grad()
def test_both_mixers_and_all_factors_are_those_of_transformers_there_and_back(tmp_path, settings):
    there = written(tmp_path, "falcon_h1", **settings)
    here, expected = load(tmp_path), there(IDS).logits
    assert [type(mixer).__name__ for mixer in here.blocks[0].mixers] == ["Softmax", "Mamba2"]
    near(here(IDS), expected)
    save(here, tmp_path / "again", "falcon_h1")
    assert load(tmp_path / "again").shape == here.shape
    near(read_there(tmp_path / "again")(IDS).logits, expected)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"key_multiplier": 0.0}, "key_multiplier in config.json must be above zero; got 0"),
        ({"key_multiplier": None}, "key_multiplier in config.json must be a finite number"),
        ({"embedding_multiplier": -1.0}, "embedding_multiplier in config.json must be above zero"),
        ({"lm_head_multiplier": 0.0}, "lm_head_multiplier in config.json must be above zero"),
        ({"attention_in_multiplier": 0.0}, "attention_in_multiplier must not be zero here"),
        (
            {"attention_bias": True},
            "with attention_bias has attention_in_multiplier=1 and attention_out_multiplier=1",
        ),
        ({"mamba_proj_bias": True, "projectors_bias": True}, "with mamba_proj_bias has ssm_in_multiplier=1 here"),
        ({"projectors_bias": True}, "projectors_bias must be as mamba_proj_bias here; got True and False"),
        ({"mlp_multipliers": [1.0]}, "mlp_multipliers must be 2 finite numbers; got"),
        ({"ssm_multipliers": [1.0, 2.0]}, "ssm_multipliers must be 5 finite numbers; got"),
        ({"layer_types": ["hybrid"] * 3}, "a falcon_h1 has no layers_block_type; got"),
        ({"mamba_d_head": 5}, "mamba_n_heads x mamba_d_head must be mamba_d_ssm, or without it"),
        ({"mamba_n_groups": 3}, "mamba_n_groups must divide mamba_n_heads; got 3 and 8"),
        ({"hidden_act": "prelu"}, "no hidden_act is named 'prelu'"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path, "falcon_h1")
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "kv_heads": 1, "layers": 2, "norm_eps": 1e-6, "feedforward": "swiglu", "second_mixer": MAMBA}
    return Decoder(Shape(29, 16, **(told | options))).eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"feedforward_scales": (0.5, 2.0), "mixer": "softmax:variant.scale=0.7,variant.value_scale=-2.0"},
        {"second_mixer": "mamba2:variant.norm_eps=1e-06,variant.out_scale=3,variant.scales=1;2;3;4;5"},
    ],
)
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, options):
    model = made(**options)
    save(model, tmp_path, "falcon_h1")
    near(model(IDS), read_there(tmp_path)(IDS, use_cache=False).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"second_mixer": None}, "has the same second_mixer mamba2 in all layers; got None"),
        ({"second_mixer": "linear"}, "has the same second_mixer mamba2 in all layers"),
        ({"second_mixer": [MAMBA, f"{MAMBA},variant.bias=true"]}, "has the same second_mixer mamba2 in all layers"),
        ({"second_mixer": "mamba2:variant.norm_eps=0.001"}, "the norm_eps of the model; got silu, 0.001"),
        ({"feedforward": "geglu"}, "has the activation of its feedforward"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, "falcon_h1")


@pytest.mark.parametrize("family", ["llama", "bamba"])
def test_other_families_have_no_second_mixer_and_no_factors_of_the_feedforward(tmp_path, family):
    with pytest.raises(ValueError, match=r"second_mixer=.* would become None|requires the mixer"):
        save(made(), tmp_path, family)
    with pytest.raises(ValueError, match=r"feedforward_scales=.* would become"):
        save(made(second_mixer=None, feedforward_scales=(2.0, 1.0)), tmp_path, family)
