"""Published models with Mamba-2 in some layers and attention in the others: what is particular to them."""

import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, written, read_there, change, near = (MIXED[name] for name in ("IDS", "written", "read_there", "change", "near"))
MAMBA = "mamba2:states=6,groups=2,taps=3,head_dim=4,variant.norm_eps=1e-06"


def recurrent(model):
    return [type(block.mixer).__name__ == "Mamba2" for block in model.blocks]


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("granitemoehybrid", {}, [True, False, True]),
        ("granitemoehybrid", {"layer_types": ["attention", "mamba", "mamba"]}, [False, True, True]),
        ("granitemoehybrid", {"layer_types": ["full_attention"] * 3}, [False] * 3),
        ("bamba", {}, [True, False, True]),
        ("bamba", {"attn_layer_indices": [2, 0, 7]}, [False, True, False]),
        ("bamba", {"attn_layer_indices": [0, 1, 2]}, [False] * 3),
    ],
)
@torch.no_grad()
def test_the_mixer_of_each_layer_is_that_of_its_type(tmp_path, family, settings, expected):
    there = written(tmp_path, family, **settings)
    change(tmp_path, **settings)
    here = load(tmp_path)
    assert recurrent(here) == expected
    near(here(IDS), there(IDS).logits)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("granitemoehybrid", {"layer_types": None}),
        ("bamba", {"attn_layer_indices": None}),
    ],
)
@torch.no_grad()
def test_a_model_without_attention_is_read_without_sizes_of_attention(tmp_path, family, settings):
    there = written(tmp_path, family, **settings, num_attention_heads=5, num_key_value_heads=5)
    here = load(tmp_path)
    assert recurrent(here) == [True] * 3
    assert here.shape.heads == 1
    # the cache of transformers needs a layer with attention
    near(here(IDS), there(IDS, use_cache=False).logits)
    save(here, tmp_path / "again", family)
    assert load(tmp_path / "again").shape == here.shape


@pytest.mark.parametrize(
    ("settings", "schemes"),
    [
        ({}, ["none"] * 3),
        ({"position_embedding_type": "rope"}, ["none", "rope", "none"]),
        ({"position_embedding_type": "nope"}, ["none"] * 3),
    ],
)
@torch.no_grad()
def test_a_granite_has_rope_only_where_it_is_said(tmp_path, settings, schemes):
    there = written(tmp_path, "granitemoehybrid", **settings)
    here = load(tmp_path)
    entries = here.shape.scheme_spec.entries
    assert [entries[layer % len(entries)].split(":")[0] for layer in range(3)] == schemes
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
@pytest.mark.parametrize("rope", [{}, {"rope_theta": 50.0}, {"partial_rotary_factor": 1.0, "rope_theta": 50.0}])
def test_a_bamba_turns_half_of_each_head_unless_its_rope_parameters_say_otherwise(tmp_path, rope):
    # the config completes the dictionary that it is given
    there = written(tmp_path, "bamba", rope_parameters=dict(rope))
    change(tmp_path, rope_parameters=rope, partial_rotary_factor=0.25)
    here = load(tmp_path)
    assert ("rotary_dim=4" in str(here.shape.scheme_spec)) is ("partial_rotary_factor" not in rope)
    near(here(IDS), there(IDS).logits)


@pytest.mark.parametrize(
    ("settings", "experts", "hidden"),
    [
        ({}, ExpertOptions(4, 2, shared_hidden=10), 12),
        ({"shared_intermediate_size": 0}, ExpertOptions(4, 2), 12),
        ({"num_local_experts": 0}, None, 10),
    ],
)
# of a network without channels
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@torch.no_grad()
def test_a_granite_has_experts_and_the_network_beside_them_or_one_of_both(tmp_path, settings, experts, hidden):
    there = written(tmp_path, "granitemoehybrid", **settings)
    here = load(tmp_path)
    assert (here.shape.experts, here.shape.hidden) == (experts, hidden)
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "granitemoehybrid")
    first, again = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert {name: x.shape for name, x in again.items()} == {name: x.shape for name, x in first.items()}
    near(read_there(tmp_path / "again")(IDS).logits, there(IDS).logits)


@torch.no_grad()
def test_the_names_of_the_experts_in_published_files_are_read(tmp_path):
    there = written(tmp_path, "granitemoehybrid")
    path = tmp_path / "model.safetensors"
    names = {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight"}
    names["moe.router.weight"] = "moe.router.layer.weight"
    tensors = load_file(path)
    for new, early in names.items():
        tensors = {name.replace(new, early): x for name, x in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    near(load(tmp_path)(IDS), there(IDS).logits)


@pytest.mark.parametrize("family", ["granitemoehybrid", "bamba"])
@torch.no_grad()
def test_null_is_no_bias_and_the_channels_of_a_head_follow_from_the_other_sizes(tmp_path, family):
    there = written(tmp_path, family, mamba_conv_bias=False)
    change(tmp_path, "mamba_d_head", mamba_conv_bias=None, mamba_proj_bias=None)
    near(load(tmp_path)(IDS), there(IDS).logits)
    change(tmp_path, mamba_d_head="auto")
    near(load(tmp_path)(IDS), there(IDS).logits)


@pytest.mark.parametrize(
    ("family", "settings", "match"),
    [
        ("granitemoehybrid", {"hidden_act": "prelu"}, "no hidden_act is named 'prelu'"),
        ("granitemoehybrid", {"layer_types": ["mamba"] * 2}, "layer_types must have one for each of the 3 layers"),
        ("granitemoehybrid", {"layer_types": ["mamba", "mamba", "moe"]}, "layer_types must be linear_attention or"),
        (
            *("granitemoehybrid", {"num_local_experts": 0, "shared_intermediate_size": 0}),
            "shared_intermediate_size must be above zero where there are no experts; got 0",
        ),
        ("bamba", {"layers_block_type": ["mamba"] * 3}, "attn_layer_indices in place of layers_block_type; got"),
        ("bamba", {"layer_types": ["mamba"] * 3}, "attn_layer_indices in place of layers_block_type; got"),
        ("bamba", {"attn_layer_indices": ["a"]}, "attn_layer_indices in config.json must be"),
        ("bamba", {"mamba_n_groups": 3}, "mamba_n_groups must divide mamba_n_heads; got 3 and 8"),
        ("bamba", {"mamba_d_head": "large"}, "mamba_d_head must be a whole number or 'auto'; got 'large'"),
        ("bamba", {"mamba_d_head": 5}, "mamba_n_heads x mamba_d_head must be mamba_expand x hidden_size; got 8 x 5"),
        ("bamba", {"mamba_n_heads": 0}, "mamba_n_heads in config.json must be above zero; got 0"),
        ("bamba", {"mamba_d_state": 10**6}, "mamba_d_state in config.json must fit the weights"),
        ("bamba", {"mamba_expand": 3, "mamba_d_head": "auto"}, "in_proj.weight must have shape"),
        ("bamba", {"time_step_limit": [0.5, -0.3]}, "time_step_limit must be two numbers"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, family, settings, match):
    written(tmp_path, family)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "kv_heads": 1, "mixer": f"{MAMBA},softmax,{MAMBA}", "scheme": "none,rope:rotary_dim=4,none"}
    told |= {"layers": 3, "norm_eps": 1e-6, "feedforward": "swiglu"}
    return Decoder(Shape(29, 16, **(told | options))).eval()


OTHER = MAMBA.replace("taps=3,", "expand=1,").replace("groups=2", "groups=4,variant.largest_step=0.5")
NOPE, GELU = {"scheme": "none"}, {"mixer": f"{MAMBA},variant.activation=gelu", "feedforward": "geglu"}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("granitemoehybrid", {"scheme": "none"}),
        ("granitemoehybrid", {"scheme": "none,rope,none", "experts": ExpertOptions(3, 1)}),
        ("granitemoehybrid", {"scheme": "none", "experts": ExpertOptions(3, shared_hidden=8)}),
        ("granitemoehybrid", {"mixer": "softmax", "scheme": "none", "residual_scale": 0.5}),
        ("bamba", {}),
        ("bamba", {"mixer": f"{OTHER},{OTHER},softmax", "scheme": "none,none,rope"}),
        ("bamba", {"mixer": "softmax", "scheme": "rope"}),
        ("bamba", {"scheme": "none"}),
        # options that follow from others are left out
        ("bamba", {"mixer": "mamba2:variant.norm_eps=1e-06,softmax,softmax", "scheme": "none,rope,rope"}),
        ("bamba", GELU | {"scheme": "none", "heads": 1}),
    ],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, family, options):
    model = made(**options)
    save(model, tmp_path, family)
    there = read_there(tmp_path)
    near(model(IDS), there(IDS, use_cache=False).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("family", "options", "match"),
    [
        ("bamba", {"mixer": f"{MAMBA},softmax,{OTHER}"}, "has the same Mamba-2 in all layers that have one"),
        ("bamba", {"feedforward": "geglu"}, "the activation of its feedforward; got silu with geglu"),
        ("bamba", {"norm_eps": 1e-3}, "the norm_eps of the model; got 1e-06 and 0.001"),
        ("bamba", {"mixer": f"{MAMBA},softmax,linear", "scheme": "none"}, "one kind of attention"),
        ("bamba", {"scheme": "none,alibi,none"}, "requires the scheme rope"),
        ("bamba", {"scheme": "sinusoidal,rope,none"}, "and none in the other layers"),
        ("bamba", {"experts": ExpertOptions(3)}, "experts=.* would become None"),
        (
            *("granitemoehybrid", {"scheme": "none", "experts": ExpertOptions(3, dense_layers=(0,))}),
            "has experts in every layer",
        ),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, family, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, family)
