"""Published models whose layers are one mixer or one feed-forward: what is particular to them."""

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, read_there, drawn, change, near = (MIXED[name] for name in ("IDS", "read_there", "drawn", "change", "near"))
SIZES = MIXED["FAMILIES"]["nemotron_h"].settings
written = partial(MIXED["written"], family="nemotron_h")


def layers(model):
    """What each layer consists of."""
    return [f"{type(block.mixer).__name__} {type(block.feedforward).__name__}" for block in model.blocks]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["Mamba2 Experts", "Mamba2 NoneType", "Softmax FeedForward"]),
        ({"layers_block_type": None}, ["Mamba2 Experts", "Softmax FeedForward"]),
        ({"moe_latent_size": 7}, ["Mamba2 Experts", "Mamba2 NoneType", "Softmax FeedForward"]),
        ({"layer_types": ["attention", "mlp", "mamba"]}, ["Softmax FeedForward", "Mamba2 NoneType"]),
        ({"layers_block_type": ["full_attention", "linear_attention"]}, ["Softmax NoneType", "Mamba2 NoneType"]),
        (
            {"layers_block_type": None, "hybrid_override_pattern": "MM*-ME"},
            ["Mamba2 NoneType", "Mamba2 NoneType", "Softmax FeedForward", "Mamba2 Experts"],
        ),
        # types count where there are both
        ({"hybrid_override_pattern": "M*"}, ["Mamba2 Experts", "Mamba2 NoneType", "Softmax FeedForward"]),
    ],
)
@torch.no_grad()
def test_a_mixer_and_the_feed_forward_behind_it_are_a_layer(tmp_path, settings, expected):
    there = written(tmp_path, **settings)
    change(tmp_path, *("layers_block_type",) * (settings.get("layers_block_type", 0) is None), **settings)
    here = load(tmp_path)
    assert layers(here) == expected
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "nemotron_h")
    first, again = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert first.keys() == again.keys()
    assert all(torch.equal(again[name], first[name]) for name in first)


@torch.no_grad()
@pytest.mark.parametrize(
    ("early", "later"),
    [
        ({"mamba_n_groups": 4}, {"n_groups": 4}),
        ({"mamba_d_conv": 2}, {"conv_kernel": 2}),
        ({"mamba_conv_bias": False}, {"use_conv_bias": False}),
        ({"mamba_dt_min": 0.5}, {"time_step_min": 0.5}),
    ],
)
def test_earlier_names_of_keys_count(tmp_path, early, later):
    there = written(tmp_path, **later)
    change(tmp_path, **{name: type(value)(SIZES.get(name, 3)) for name, value in later.items()}, **early)
    near(load(tmp_path)(IDS), there(IDS).logits)


@torch.no_grad()
def test_a_step_has_its_least_size_only_and_the_keys_without_effect_have_none(tmp_path):
    there = written(tmp_path, time_step_min=0.4)
    change(tmp_path, time_step_limit=[0.6, 0.7], expand=7, mamba_proj_bias=True, attention_bias=True)
    here = load(tmp_path)
    assert "least_step=0.4" in str(here.shape.mixer_spec)
    near(here(IDS), there(IDS).logits)
    written(tmp_path, time_step_min=0.001)
    assert (load(tmp_path)(IDS) - there(IDS).logits).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["model.", ""])
def test_other_names_of_tensors_are_read(tmp_path, prefix):
    there = written(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name.replace("backbone.", prefix): x for name, x in load_file(path).items()}
    if prefix:
        # one tensor of all experts, as in models of transformers
        for part in ("up_proj", "down_proj"):
            names = [f"model.layers.1.mixer.experts.{expert}.{part}.weight" for expert in range(6)]
            tensors[f"model.layers.1.mixer.experts.{part}"] = torch.stack([tensors.pop(name) for name in names])
    tensors["mtp.layers.0.norm.weight"] = torch.zeros(3)
    save_file(tensors, path, metadata={"format": "pt"})
    near(load(tmp_path)(IDS), there(IDS).logits)


@torch.no_grad()
def test_the_head_is_not_tied(tmp_path):
    there = written(tmp_path, tie_word_embeddings=True)
    here = load(tmp_path)
    assert not here.shape.tie_embeddings
    near(here(IDS), there(IDS).logits)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"layers_block_type": ["mlp", "mamba"]}, "each moe and mlp of layers_block_type must follow a linear_atten"),
        (
            {"layers_block_type": ["mamba", "mlp", "moe"]},
            "each moe and mlp of layers_block_type must follow a linear",
        ),
        ({"layers_block_type": ["mamba", "conv"]}, r"layers_block_type must be some of .*; got \['mamba', 'conv'\]"),
        ({"layers_block_type": []}, r"layers_block_type must be some of linear_attention, .*; got \[\]"),
        ({"layers_block_type": None, "hybrid_override_pattern": "M-X"}, "hybrid_override_pattern must be a text of"),
        ({"layers_block_type": None, "hybrid_override_pattern": 3}, "hybrid_override_pattern must be a text of"),
        ({"mlp_bias": True}, "a nemotron_h with experts has no mlp_bias here; got mlp_bias=True"),
        ({"moe_latent_size": 8}, "fc1_latent_proj.weight"),
        ({"moe_latent_size": 0}, "moe_latent_size in config.json must be above zero; got 0"),
        ({"mlp_hidden_act": "prelu"}, "no mlp_hidden_act is named 'prelu'; there are"),
        ({"mamba_hidden_act": "prelu"}, "no mamba_hidden_act is named 'prelu'; there are"),
        ({"n_groups": 3}, "n_groups must divide mamba_num_heads; got 3 and 4"),
        ({"mamba_n_groups": "x"}, "n_groups in config.json must be a whole number; got 'x'"),
        ({"mamba_num_heads": 10**6}, "mamba_num_heads in config.json must fit the weights"),
        ({"n_group": 4}, "n_group must divide n_routed_experts"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, *(name for name, value in settings.items() if value is None))
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


MAMBA = "mamba2:variant.inner=20,head_dim=5,states=6,groups=2,variant.norm_eps=1e-05,variant.least_step=0.01"
GELU = "mamba2:states=4,variant.norm_eps=1e-05,variant.activation=gelu,variant.bias=true"
CHOICE = {"scores": "sigmoid", "choice_bias": True}


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "mixer": f"{MAMBA},softmax,{MAMBA}", "scheme": "none", "layers": 3, "norm_eps": 1e-5}
    told |= {"feedforward": "relu2", "tie_embeddings": False, "mixer_only_layers": (2,)}
    return drawn(Decoder(Shape(29, 16, **(told | options))), 0.1)


NO_FEEDFORWARD = {"feedforward": "none", "mixer_only_layers": ()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mixer_only_layers": ()},
        {"bias": ("norm", "feedforward"), "feedforward": "silu"},
        NO_FEEDFORWARD,
        NO_FEEDFORWARD | {"mixer": GELU, "heads": 1},
        {"mixer": "softmax"},
        {"experts": ExpertOptions(4, 1, dense_layers=(1,), dense_hidden=8, shared_hidden=20, **CHOICE)},
        {"experts": ExpertOptions(4, 1, latent=8, shared_hidden=20, **CHOICE)},
        {"experts": ExpertOptions(4, normalise=False, groups=2, shared_hidden=8, scale=2.0, **CHOICE), "hidden": 12},
    ],
)
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, options):
    model = made(**options)
    save(model, tmp_path, "nemotron_h")
    there = read_there(tmp_path)
    near(model(IDS), there(IDS, use_cache=False).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tie_embeddings": True}, "tie_embeddings=True would become False"),
        ({"feedforward": "swiglu"}, "a nemotron_h requires relu2 or another plain feedforward"),
        ({"scheme": "none,rope,none"}, "a nemotron_h has scheme none; got rope"),
        ({"mixer": f"{MAMBA},{MAMBA},{MAMBA},variant.largest_step=0.5".replace(",v", ",v"), "layers": 3}, "Mamba-2"),
        ({"mixer": MAMBA.replace("least_step=0.01", "largest_step=0.5")}, "has no largest_step; got 0.5"),
        ({"norm_eps": 1e-3}, "has the norm_eps of the model; got 1e-05 and 0.001"),
        ({"experts": ExpertOptions(4, shared_hidden=8)}, "whose scores are sigmoids"),
        ({"experts": ExpertOptions(4, **CHOICE)}, "experts=.* would become"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, "nemotron_h")
