"""Kimi Linear: what is particular to it."""

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

FULL, KDA = "full_attention", "linear_attention"
MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, read_there, change, near = (MIXED[name] for name in ("IDS", "read_there", "change", "near"))
written = partial(MIXED["written"], family="kimi_linear")
MIXER = "kimi_delta_attention:heads=3,head_dim=5,taps=3,norm_eps=1e-05"
ATTENTION = "latent:variant.rank=8,variant.content_width=6,variant.value_width=5"


def delta(model):
    return [type(block.mixer).__name__ == "KimiDeltaAttention" for block in model.blocks]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"layer_types": [KDA, KDA, FULL, KDA]}, [True, True, False, True]),
        ({"layer_types": ["attention", "mamba", KDA, FULL]}, [False, True, True, False]),
        ({"layer_types": [FULL] * 4}, [False] * 4),
        # one in four layers, but not the first
        ({"num_hidden_layers": 5}, [True] * 4 + [False]),
        ({"linear_attn_config": {"full_attn_layers": [1, 4], "kda_layers": [3, 2]}}, [False, True, True, False]),
        # one of the lists alone does not count, and types count before the lists
        ({"linear_attn_config": {"kda_layers": [1]}}, [True] * 4),
        (
            {
                "linear_attn_config": {"full_attn_layers": [1, 2], "kda_layers": [3, 4]},
                "layer_types": [KDA, FULL, KDA, FULL],
            },
            [True, False, True, False],
        ),
    ],
)
@torch.no_grad()
def test_the_mixer_of_each_layer_is_that_of_its_type(tmp_path, settings, expected):
    there = written(tmp_path, **({"layer_types": None} | settings))
    # as it was given, without the types that transformers writes out
    change(tmp_path, "layer_types", "mlp_layer_types", **settings)
    here = load(tmp_path)
    assert delta(here) == expected
    assert set(here.shape.scheme_spec.entries) == {"none"}
    # the cache of transformers needs a layer with attention
    near(here(IDS), there(IDS, use_cache=False).logits)


@torch.no_grad()
def test_sizes_of_published_files_count_where_they_are_there(tmp_path):
    own = {"num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 2}
    own |= {"full_attn_layers": [2], "kda_layers": [1, 3, 4]}
    there = written(tmp_path, linear_attn_config=own, layer_types=None)
    published = {"linear_attn_config": own, "first_k_dense_replace": 1, "mla_use_nope": True, "num_heads": 7}
    kept = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "layer_types", "mlp_layer_types")
    change(tmp_path, *kept, **published)
    here = load(tmp_path)
    assert delta(here) == [True, False, True, True]
    sizes = here.blocks[0].mixer.sizes
    assert (sizes.heads, sizes.key_width, sizes.value_width, sizes.gate_rank) == (2, 4, 4, 4)
    assert here.blocks[0].mixer.convolution.weight.shape == (24, 2)
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "kimi_linear")
    near(read_there(tmp_path / "again")(IDS).logits, there(IDS).logits)


@torch.no_grad()
def test_files_have_published_names_and_those_of_models_are_read_too(tmp_path):
    there = written(tmp_path)
    path = tmp_path / "model.safetensors"
    names = load_file(path).keys()
    assert "model.layers.0.self_attn.q_conv1d.weight" in names
    here = load(tmp_path)
    save(here, tmp_path / "again", "kimi_linear")
    stored = load_file(tmp_path / "again" / "model.safetensors")
    # transformers gives the feed-forward of layers without experts the name of experts, too
    dense = "model.layers.0.block_sparse_moe.", "model.layers.0.mlp."
    assert stored.keys() == {name.replace(*dense) for name in names}
    assert "model.layers.1.block_sparse_moe.experts.5.w3.weight" in names
    state = {name: x.contiguous() for name, x in there.state_dict().items()}
    assert "model.layers.0.self_attn.conv1d.weight" in state
    assert "model.layers.1.mlp.experts.gate_up_proj" in state
    save_file(state, path)
    near(load(tmp_path)(IDS), there(IDS).logits)
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
def test_a_model_without_attention_is_read_without_sizes_of_attention(tmp_path):
    there = written(tmp_path, layer_types=[KDA] * 4, num_attention_heads=5, num_key_value_heads=5, kv_lora_rank=10**6)
    here = load(tmp_path)
    assert delta(here) == [True] * 4
    assert here.shape.heads == 1
    near(here(IDS), there(IDS, use_cache=False).logits)
    save(here, tmp_path / "again", "kimi_linear")
    assert load(tmp_path / "again").shape == here.shape


@pytest.mark.parametrize(
    ("settings", "experts"),
    [
        ({}, ExpertOptions(6, 2, True, dense_layers=(0,), dense_hidden=12, scores="sigmoid", choice_bias=True,
                           scale=2.446, shared_hidden=10)),
        ({"mlp_layer_types": ["sparse"] * 4, "moe_renormalize": False, "routed_scaling_factor": 0.5,
          "num_expert_group": 3, "topk_group": 2, "num_shared_experts": 3},
         ExpertOptions(6, 2, False, scores="sigmoid", choice_bias=True, scale=0.5, shared_hidden=30, groups=3,
                       chosen_groups=2)),
        ({"first_k_dense_replace": 3}, ExpertOptions(6, 2, True, dense_layers=(0, 1, 2), dense_hidden=12,
                                                     scores="sigmoid", choice_bias=True, scale=2.446,
                                                     shared_hidden=10)),
        ({"mlp_layer_types": ["dense"] * 4}, None),
    ],
)  # fmt: skip
@torch.no_grad()
def test_layers_that_config_json_names_or_those_behind_the_first_have_experts(tmp_path, settings, experts):
    there = written(tmp_path, **settings)
    change(tmp_path, "mlp_layer_types", **settings)
    here = load(tmp_path)
    if experts is None:
        # without types, the first layer only
        assert here.shape.experts is None
    else:
        assert here.shape.experts == experts
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "kimi_linear")
    near(read_there(tmp_path / "again")(IDS).logits, there(IDS).logits)


@torch.no_grad()
def test_a_head_is_never_tied_and_positions_of_rope_have_no_effect(tmp_path):
    there = written(tmp_path, tie_word_embeddings=True, rope_theta=3.0, max_position_embeddings=8)
    here = load(tmp_path)
    assert not here.shape.tie_embeddings
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
def test_of_two_names_of_a_setting_the_published_one_counts(tmp_path):
    names = {"num_local_experts": 4, "num_experts_per_tok": 1, "n_shared_experts": 3, "norm_topk_prob": True}
    own = {"num_experts": 6, "num_experts_per_token": 2, "num_shared_experts": 2, "moe_renormalize": False}
    there = written(tmp_path, **names, **own)
    change(tmp_path, **names, **own)
    here = load(tmp_path)
    options = here.shape.experts
    assert (options.count, options.chosen, options.shared_hidden, options.normalise) == (6, 2, 20, False)
    near(here(IDS), there(IDS).logits)


LISTS = "full_attn_layers and kda_layers of linear_attn_config must be lists of all layers, 1 to 4"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"layer_types": [KDA] * 3}, "layer_types must have one for each of the 4 layers"),
        ({"layer_types": [KDA] * 3 + ["conv"]}, "layer_types must be linear_attention or full_attention; got"),
        ({"mlp_layer_types": ["dense"] * 3}, "mlp_layer_types must have a kind for each of 4 layers"),
        ({"hidden_act": "sigmoid"}, "hidden_act of a kimi_linear must take 0 to 0.*; got 'sigmoid'"),
        ({"linear_num_heads": 0}, "linear_num_heads in config.json must be above zero; got 0"),
        ({"linear_num_heads": 10**6}, "linear_num_heads in config.json must fit the weights"),
        ({"linear_num_heads": 2}, r"must have shape \(10, 16\)"),
        ({"linear_conv_kernel_dim": 2}, r"q_conv1d.weight must have shape \(15, 1, 2\)"),
        ({"linear_attn_config": None}, "linear_attn_config in config.json must be dict"),
        ({"linear_attn_config": {"num_heads": 10**6}}, "num_heads in config.json must fit the weights"),
        ({"linear_attn_config": {"head_dim": 0}}, "linear_head_dim in config.json must be above zero; got 0"),
        ({"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2, 3]}, "layer_types": None}, LISTS),
        ({"linear_attn_config": {"full_attn_layers": [0], "kda_layers": [1, 2, 3]}, "layer_types": None}, LISTS),
        ({"linear_attn_config": {"full_attn_layers": [], "kda_layers": [2, 3, 4, 5]}, "layer_types": None}, LISTS),
        ({"linear_attn_config": {"full_attn_layers": [], "kda_layers": []}, "layer_types": None}, LISTS),
        ({"linear_attn_config": {"full_attn_layers": 1, "kda_layers": [2, 3, 4]}, "layer_types": None}, LISTS),
        ({"num_experts": 10**6}, "num_local_experts must be above zero, and fit the weights; got 1000000"),
        ({"num_experts": 7}, "missing model.layers.1.block_sparse_moe.experts.6"),
        ({"num_expert_group": 4}, "n_group must divide num_local_experts"),
        ({"topk_group": 2}, "topk_group groups have num_experts_per_tok experts; got .*n_group=1, topk_group=2"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "head_width": 4, "mixer": f"{MIXER},{ATTENTION},{MIXER}", "scheme": "none"}
    told |= {"layers": 3, "norm_eps": 1e-5, "feedforward": "swiglu", "tie_embeddings": False}
    return Decoder(Shape(29, 16, **(told | options))).eval()


SIGMOIDS = {"scores": "sigmoid", "choice_bias": True, "shared_hidden": 48}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mixer": ATTENTION},
        {"mixer": "latent"},
        # options that equal their defaults are left out
        {"mixer": f"{MIXER},latent,{MIXER}"},
        {"mixer": "kimi_delta_attention", "heads": 1, "head_width": None},
        {"mixer": MIXER, "heads": 1, "head_width": None},
        {"mixer": f"{MIXER},activation=gelu,{ATTENTION},variant.bias=true", "feedforward": "geglu", "layers": 2},
        {"experts": ExpertOptions(3, **SIGMOIDS), "hidden": 48},
        {"experts": ExpertOptions(4, **SIGMOIDS, groups=2, dense_layers=(1,), dense_hidden=20), "hidden": 24},
    ],
)  # fmt: skip
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, options):
    model = made(**options)
    save(model, tmp_path, "kimi_linear")
    near(model(IDS), read_there(tmp_path)(IDS, use_cache=False).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


OTHERS = "has the norm_eps of the model, the activation of its feedforward, rank=head_dim and no negative_eigenvalues"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixer": f"{MIXER},{ATTENTION},kimi_delta_attention"}, "the same Kimi Delta Attention in all layers"),
        ({"mixer": f"{MIXER},softmax,{MIXER}", "head_width": None}, "a kimi_linear requires the mixer 'latent"),
        ({"mixer": f"{MIXER},{ATTENTION},latent"}, "one kind of attention"),
        ({"mixer": f"{MIXER},{ATTENTION},{MIXER}".replace("1e-05", "1e-06")}, OTHERS),
        ({"mixer": f"{MIXER},{ATTENTION},{MIXER}".replace("taps=3", "rank=2")}, OTHERS),
        ({"mixer": f"{MIXER},{ATTENTION},{MIXER}".replace("taps=3", "negative_eigenvalues=true")}, OTHERS),
        ({"feedforward": "geglu"}, OTHERS),
        ({"scheme": "none,rope,none"}, "a kimi_linear has scheme none; got"),
        ({"tie_embeddings": True}, "tie_embeddings=True would become False"),
        ({"mixer": f"{MIXER},{ATTENTION},{MIXER}".replace("_width=5", "_width=5,variant.scale=0.3")}, "would become"),
        ({"experts": ExpertOptions(3)}, "whose scores are sigmoids"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, "kimi_linear")
