"""LFM2, with experts and without: what is particular to them."""

import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Lfm2MoeForCausalLM

from ordinate import Decoder, Geometry, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, LEFT, written, read_there, change, near = (
    MIXED[name] for name in ("IDS", "LEFT", "written", "read_there", "change", "near")
)
NAMES = ["lfm2", "lfm2_moe"]
ATTENTION = "softmax:variant.qk_norm=true,variant.norm_eps=1e-06"
TYPES = {"layer_types": ["conv", "full_attention", "conv"]}
FACTOR = "block_ffn_dim_multiplier"
CONVOLUTION = "gated_short_convolution:taps=4"


def convolved(model):
    return [type(block.mixer).__name__ == "GatedShortConvolution" for block in model.blocks]


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("lfm2", {}, [True, False, True]),
        ("lfm2_moe", {}, [True, False, True]),
        ("lfm2_moe", {"layer_types": ["attention", "conv", "conv"]}, [False, True, True]),
        ("lfm2_moe", {"layer_types": ["full_attention"] * 3}, [False] * 3),
        # which count where there are no types only
        ("lfm2", {"full_attn_idxs": [0, 2]}, [True, False, True]),
        ("lfm2", {"full_attn_idxs": [0, 2, 7, -2], "layer_types": None}, [False, True, False]),
        ("lfm2", {"layer_types": None}, [False] * 3),
    ],
)
@torch.no_grad()
def test_the_mixer_of_each_layer_is_that_of_its_type(tmp_path, family, settings, expected):
    there = written(tmp_path, family, **settings)
    # as it was given, without the types that transformers writes out
    change(tmp_path, "layer_types", "full_attn_idxs", **(TYPES | settings))
    here = load(tmp_path)
    assert convolved(here) == expected
    near(here(IDS), there(IDS).logits)


@pytest.mark.parametrize("family", NAMES)
@torch.no_grad()
def test_a_model_without_attention_is_read_without_sizes_of_attention(tmp_path, family):
    there = written(tmp_path, family, layer_types=["conv"] * 3, num_attention_heads=5, num_key_value_heads=5)
    here = load(tmp_path)
    assert convolved(here) == [True] * 3
    assert here.shape.heads == 1
    # the cache of transformers needs a layer with attention
    near(here(IDS), there(IDS, use_cache=False).logits)
    save(here, tmp_path / "again", family)
    assert load(tmp_path / "again").shape == here.shape


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [
        ({}, 8),
        ({"intermediate_size": 13}, 8),
        ({"intermediate_size": 14}, 12),
        ({"block_multiple_of": 1, "block_ffn_dim_multiplier": 1.7}, 13),
        ({"block_ffn_dim_multiplier": 3}, 24),
        ({"block_auto_adjust_ff_dim": False}, 12),
        ({"block_ff_dim": 30}, 20),
        ({"block_ff_dim": 30, "block_auto_adjust_ff_dim": False}, 30),
    ],
)
@torch.no_grad()
def test_the_hidden_width_is_adjusted_as_in_transformers(tmp_path, settings, hidden):
    there = written(tmp_path, "lfm2", **settings)
    change(tmp_path, "block_ff_dim", **({"intermediate_size": 12} | settings))
    here = load(tmp_path)
    assert here.shape.hidden == there.model.layers[0].feed_forward.w1.out_features == hidden
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "lfm2")
    assert torch.equal(load(tmp_path / "again")(IDS), here(IDS))


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_an_earlier_name_says_whether_the_head_is_tied(tmp_path, tied):
    there = written(tmp_path, "lfm2", tie_embedding=tied)
    change(tmp_path, tie_word_embeddings=not tied, tie_embedding=tied)
    here = load(tmp_path)
    assert here.shape.tie_embeddings is tied
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
def test_weights_of_experts_are_divided_by_a_sum_that_is_never_small(tmp_path):
    there = written(tmp_path, "lfm2_moe", routed_scaling_factor=1.5)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for name, x in tensors.items():
        if name.endswith("feed_forward.gate.weight"):
            # sigmoids of about 1e-6
            tensors[name] = 0.1 * x - 2.5 * torch.sign(tensors[name.replace("feed_forward.gate", "ffn_norm")])
    save_file(tensors, path, metadata={"format": "pt"})
    there = Lfm2MoeForCausalLM.from_pretrained(tmp_path).eval()
    there.set_experts_implementation("eager")
    here = load(tmp_path)
    near(here(IDS), there(IDS).logits)
    assert here.shape.experts.sum_eps == 1e-6


@pytest.mark.parametrize(
    ("settings", "experts"),
    [
        ({}, ExpertOptions(6, 2, True, dense_layers=(0,), dense_hidden=12, scores="sigmoid", choice_bias=True,
                           sum_eps=1e-6)),
        ({"num_dense_layers": 0, "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 2.5},
         ExpertOptions(6, 2, False, scores="sigmoid", scale=2.5)),
        ({"num_dense_layers": 5}, None),
    ],
)  # fmt: skip
@torch.no_grad()
def test_layers_behind_the_first_have_experts(tmp_path, settings, experts):
    there = written(tmp_path, "lfm2_moe", **settings)
    here = load(tmp_path)
    assert here.shape.experts == experts
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "lfm2_moe")
    again = read_there(tmp_path / "again")
    near(again(IDS).logits, there(IDS).logits)


@torch.no_grad()
def test_one_tensor_of_all_experts_is_read_as_one_for_each(tmp_path):
    there = written(tmp_path, "lfm2_moe")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    assert any(name.endswith("feed_forward.experts.0.w1.weight") for name in tensors)
    save_file({name: x.contiguous() for name, x in there.state_dict().items() if name != "lm_head.weight"}, path)
    near(load(tmp_path)(IDS), there(IDS).logits)


@pytest.mark.parametrize("family", NAMES)
@torch.no_grad()
def test_padded_texts_with_biases_are_as_alone_in_transformers(tmp_path, family):
    # of padded ones, transformers carries the bias of padding into the first tokens
    there = written(tmp_path, family, conv_bias=True)
    out = load(tmp_path)(IDS, Geometry.padded(LEFT))
    near(out[0, 4:], there(IDS[:1, 4:]).logits[0])
    near(out[1], there(IDS[1:]).logits[0])


@pytest.mark.parametrize(
    ("family", "settings", "match"),
    [
        ("lfm2", {"layer_types": ["conv"] * 2}, "layer_types must have one for each of the 3 layers"),
        ("lfm2", {"layer_types": ["conv", "conv", "mamba"]}, "layer_types must be conv or full_attention; got"),
        ("lfm2_moe", {"layer_types": None}, "layer_types of a lfm2_moe must be a list of conv and .*None"),
        ("lfm2", {"layer_types": None, "full_attn_idxs": ["a"]}, "full_attn_idxs in config.json must be"),
        ("lfm2", {"conv_L_cache": 0}, "conv_L_cache in config.json must be above zero; got 0"),
        ("lfm2", {"conv_L_cache": 10**6}, "conv_L_cache in config.json must fit the weights"),
        ("lfm2", {"conv_L_cache": 2}, r"conv.conv.weight must have shape \(16, 1, 2\)"),
        ("lfm2", {"tie_embedding": "x"}, "tie_word_embeddings in config.json must be true or false; got 'x'"),
        ("lfm2", {"conv_bias": None}, "conv_bias in config.json must be true or false; got None"),
        ("lfm2", {"conv_bias": True}, "in_proj.bias"),
        ("lfm2", {"block_multiple_of": 0}, "block_multiple_of in config.json must be above zero; got 0"),
        ("lfm2", {FACTOR: 0.1}, f"{FACTOR} must be a channel or more.*; got 12 and 0.1"),
        ("lfm2", {FACTOR: 1e300}, f"{FACTOR} must be .*below 2.62; got 12 and 1e"),
        ("lfm2", {FACTOR: None}, f"{FACTOR} in config.json must be a finite number"),
        ("lfm2", {"intermediate_size": 30}, r"w1.weight must have shape \(20, 16\)"),
        ("lfm2_moe", {"num_experts": 10**6}, "num_experts must be above zero, and fit the weights; got 1000000"),
    ],
)  # fmt: skip
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, family, settings, match):
    written(tmp_path, family)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(**options):
    torch.manual_seed(0)
    told = {
        "heads": 2,
        "kv_heads": 1,
        "mixer": f"{CONVOLUTION},{ATTENTION},{CONVOLUTION}",
        "scheme": "none,rope,none",
    }
    told |= {"layers": 3, "norm_eps": 1e-6, "feedforward": "swiglu"}
    return Decoder(Shape(29, 16, **(told | options))).eval()


SIGMOIDS = {"scores": "sigmoid", "sum_eps": 1e-6}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in NAMES),
        ("lfm2", {"head_width": 6}),
        ("lfm2", {"mixer": "gated_short_convolution:bias=true", "scheme": "none", "heads": 1, "kv_heads": 1}),
        ("lfm2", {"mixer": ATTENTION, "scheme": "rope:theta=100.0", "tie_embeddings": False}),
        ("lfm2_moe", {"experts": ExpertOptions(3, **SIGMOIDS)}),
        ("lfm2_moe", {"experts": ExpertOptions(3, **SIGMOIDS, choice_bias=True, dense_layers=(0,))}),
    ],
)
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
        (
            *("lfm2", {"mixer": f"{CONVOLUTION},{ATTENTION},gated_short_convolution"}),
            "has the same gated short convolution in all layers that have one",
        ),
        ("lfm2", {"mixer": f"{CONVOLUTION},softmax,{CONVOLUTION}"}, "requires the mixer 'softmax:variant.qk_norm"),
        ("lfm2", {"feedforward": "geglu"}, "the feedforward must be one that the family has: swiglu"),
        ("lfm2", {"scheme": "none,alibi,none"}, "requires the scheme rope"),
        ("lfm2", {"scheme": "none"}, "scheme=.* would become"),
        ("lfm2", {"experts": ExpertOptions(3)}, "experts=.* would become None"),
        ("lfm2_moe", {"experts": ExpertOptions(3, scores="sigmoid")}, "and sum_eps=1e-06 where weights are normal"),
        ("lfm2_moe", {"experts": ExpertOptions(3)}, "whose scores are sigmoids"),
        ("lfm2_moe", {"experts": ExpertOptions(3, **SIGMOIDS, dense_layers=(1,))}, "would become"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, family, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, family)
