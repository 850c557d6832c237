"""Published Olmo Hybrid models: what is particular to them."""

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import OlmoHybridForCausalLM

from ordinate import Decoder, Shape, load, save

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, change, near = (MIXED[name] for name in ("IDS", "change", "near"))
written = partial(MIXED["written"], family="olmo_hybrid")
WITHOUT = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
DELTA = "gated_deltanet:heads=2,key_width=5,taps=3,variant.norm_eps=1e-05"
SOFTMAX = "softmax:variant.qk_norm=true,variant.norm_eps=1e-06,variant.qk_norm_across=true"


@pytest.mark.parametrize("settings", [WITHOUT, {}, {"linear_allow_neg_eigval": False}, {"num_hidden_layers": 3}])
@torch.no_grad()
def test_norms_mixers_and_positions_of_each_layer_are_those_of_its_type(tmp_path, settings):
    there = written(tmp_path, **settings)
    here, last = load(tmp_path), settings.get("num_hidden_layers", 4) - 1
    assert here.shape.layer_norm_positions == ["pre"] * last + ["res_post"]
    assert [type(block.mixer).__name__ for block in here.blocks] == ["GatedDeltaNet"] * last + ["Softmax"]
    assert here.shape.scheme_spec.entries[-1].startswith("none" if settings is WITHOUT else "rope")
    assert here.blocks[0].mixer.sizes.negative_eigenvalues is settings.get("linear_allow_neg_eigval", True)
    near(here(IDS), there(IDS).logits)


def published(tensors):
    """The tensors as the authors have them: filters in parts of queries, keys and values."""
    parted = {}
    for layer in range(3):
        start = f"model.layers.{layer}.linear_attn."
        whole = torch.cat([tensors.pop(f"{start}{part}_conv1d.weight") for part in "qkv"])
        sizes = [len(tensors[f"{start}{part}_proj.weight"]) for part in "qkv"]
        parted |= {
            f"{start}{part}_conv1d.weight": x.clone() for part, x in zip("qkv", whole.split(sizes), strict=True)
        }
    return tensors | parted


def internal(tensors):
    """The tensors with the names of the model of transformers."""
    tensors = dict(tensors)
    for layer in range(3):
        start = f"model.layers.{layer}.linear_attn."
        parts = [tensors.pop(f"{start}{part}_conv1d.weight") for part in "qkv"]
        tensors[f"{start}conv1d.weight"] = torch.cat(parts)
    names = {"attention_layer_norm": "input_layernorm", "feedforward_layer_norm": "post_attention_layernorm"}
    for old, new in names.items():
        tensors = {name.replace(old, new): x for name, x in tensors.items()}
    return tensors


@pytest.mark.parametrize("renamed", [published, internal])
@torch.no_grad()
def test_files_of_the_authors_and_names_of_the_model_are_read(tmp_path, renamed):
    there, path = written(tmp_path), tmp_path / "model.safetensors"
    tensors = load_file(path)
    assert tensors["model.layers.0.linear_attn.q_conv1d.weight"].shape == (16, 1, 4)
    save_file(renamed(tensors), path, metadata={"format": "pt"})
    near(load(tmp_path)(IDS), there(IDS).logits)
    near(OlmoHybridForCausalLM.from_pretrained(tmp_path).eval()(IDS).logits, there(IDS).logits)


def test_filters_of_other_channels_are_refused_by_name(tmp_path):
    written(tmp_path)
    path = tmp_path / "model.safetensors"
    name = "model.layers.0.linear_attn.v_conv1d.weight"
    tensors = load_file(path)
    save_file(tensors | {name: tensors[name][:-1].clone()}, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"q_conv1d.weight must have shape \(12, 1, 4\) .*; got \(16, 1, 4\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"layer_types": ["linear_attention"] * 4},
            "layer_types of a olmo_hybrid must have a linear_attention and a",
        ),
        ({"layer_types": ["full_attention"] * 4}, "layer_types of a olmo_hybrid must have a linear_attention and a"),
        (
            {"linear_num_key_heads": 16, "linear_key_head_dim": None},
            "linear_key_head_dim must be a whole number above zero; got 0",
        ),
        ({"hidden_act": "laplace"}, "hidden_act of a olmo_hybrid must take 0 to 0"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(mixers, scheme="none", positions=("pre", "pre", "res_post")):
    torch.manual_seed(0)
    told = {"norm_eps": 1e-6, "feedforward": "swiglu", "kv_heads": 1, "norm_position": positions}
    return Decoder(Shape(29, 16, 3, 2, mixer=",".join(mixers), scheme=scheme, **told)).eval()


@pytest.mark.parametrize("scheme", ["none", "none,none,rope"])
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, scheme):
    model = made([DELTA, DELTA, SOFTMAX], scheme)
    save(model, tmp_path, "olmo_hybrid")
    near(model(IDS), OlmoHybridForCausalLM.from_pretrained(tmp_path).eval()(IDS).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("mixers", "positions", "match"),
    [
        ([DELTA, DELTA, SOFTMAX], "pre", "has norm_position pre in layers with a gated DeltaNet, res_post in the"),
        ([SOFTMAX] * 3, "res_post", "and both; got res_post"),
        ([DELTA.replace("1e-05", "1e-06")] * 2 + [SOFTMAX], ("pre", "pre", "res_post"), "have norm_eps=1e-05; got"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, mixers, positions, match):
    with pytest.raises(ValueError, match=match):
        save(made(mixers, positions=positions), tmp_path, "olmo_hybrid")
