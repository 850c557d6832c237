"""Files of decoders that are near to another family: their names of tensors, early settings, and what is not read."""

import json
import runpy
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape
from ordinate.core import catalog
from ordinate.pretrained import verify
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS, MODELS = (runpy.run_path(str(Path(__file__).with_name(f"{name}.py"))) for name in ("fields", "families"))
SIZES = {name: FIELDS["FIELDS"][name][0] for name in FIELDS["FIELDS"]}
LLAMA_LIKE = [
    name for name in catalog.names("ordinate.pretrained.families") if isinstance(family_of(name), LlamaLike)
]
NEAR = {"rope_type": "default", "rope_theta": 1e4}


def agrees(folder):
    found = verify(folder, checks=["outputs"])
    assert found.agrees, found.to_dict()


def same(mine, expected):
    mine, expected = mine.state_dict(), expected.state_dict()
    assert mine.keys() == expected.keys()
    assert all(torch.equal(mine[name], expected[name]) for name in mine)


@pytest.mark.parametrize(
    ("name", "published", "own"),
    [
        ("exaone, biases", "transformer.h.1.attn.attention.out_proj.bias", "model.layers.1.self_attn.o_proj.bias"),
        ("sarvam_moe", "model.layers.1.attention.query_key_value.weight", "model.layers.1.self_attn.q_proj.weight"),
        ("sarvam_moe, groups", "model.layers.1.mlp.gate.expert_bias", "model.layers.1.self_attn.q_proj.bias"),
        ("hy_v3", "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.gate.weight"),
    ],
)
def test_published_names_and_those_of_transformers_are_read_and_the_first_are_written(name, published, own, tmp_path):
    other = MODELS["theirs"](name, tie_word_embeddings=False)
    for folder, kind in (("published", True), ("own", False)):
        other.save_pretrained(tmp_path / folder, save_original_format=kind)
        other.base_model.save_pretrained(tmp_path / f"bare {folder}", save_original_format=kind)
    first, kept = load(tmp_path / "published"), load_file(tmp_path / "published" / "model.safetensors")
    assert published in kept
    assert own in load_file(tmp_path / "own" / "model.safetensors")
    same(load(tmp_path / "own"), first)
    bare = load(tmp_path / "bare published")
    assert bare.shape.head == "none"
    same(load(tmp_path / "bare own"), bare)
    save(load(tmp_path / "own"), tmp_path / "again", name.partition(",")[0])
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == kept.keys()
    assert all(again[key].equal(kept[key]) for key in kept)
    lacking = {key: x for key, x in kept.items() if key != published}
    save_file(lacking, tmp_path / "published" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"a checkpoint must contain every tensor .*; missing {published}; "):
        load(tmp_path / "published")


@pytest.mark.parametrize(
    ("family", "told", "extra"),
    [
        ("hy_v3", {}, "model.layers.80.eh_proj.weight"),
        ("mellum", {"num_nextn_predict_layers": 1}, "mtp.layers.0.eh_proj.weight"),
        ("sarvam_moe", {"num_nextn_predict_layers": 1}, "model.layers.2.eh_proj.weight"),
        ("sarvam_mla", {"num_nextn_predict_layers": 1}, "model.layers.2.eh_proj.weight"),
        ("sarvam_mla", {}, "model.layers.61.eh_proj.weight"),
    ],
)
def test_layers_for_later_tokens_are_not_read(family, told, extra, made):
    more = {extra: torch.ones(3)}
    agrees(made(family, "ForCausalLM", told, lambda kept: more))
    with pytest.raises(ValueError, match=r"got unexpected model\.layers\.9\.eh_proj\.weight"):
        load(made(family, "ForCausalLM", told, lambda kept: {"model.layers.9.eh_proj.weight": torch.ones(3)}))


def test_the_early_settings_of_a_sarvam_are_those_of_deepseek():
    read = family_of("sarvam_mla").read_config
    told = {"factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16}
    sizes = SIZES["sarvam_mla"]
    expected = read(sizes | {"rope_parameters": {"rope_type": "yarn", **told}}, ())
    assert "spectrum=yarn" in expected.scheme
    for early in (
        {"type": "deepseek_yarn"},
        {"rope_type": "deepseek_yarn"},
        {"type": "x", "rope_type": "deepseek_yarn"},
    ):
        assert read(sizes | {"rope_scaling": {**early, **told}, "head_dim": 576}, ()) == expected


@pytest.mark.parametrize(
    ("told", "scheme", "windows"),
    [
        ({}, "rope:theta=500000.0", (None,)),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "rope:theta=10000.0,rope:theta=500000.0",
            (3, None),
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7}}}, "rope:theta=7", (None,)),
        ({"rope_theta": 5.0, "rope_scaling": {"rope_type": "linear"}}, "rope:theta=500000.0", (None,)),
    ],
)
def test_the_layers_of_a_mellum_have_the_rope_of_their_type(told, scheme, windows):
    shape = family_of("mellum").read_config(SIZES["mellum"] | {"layer_types": None} | told, ())
    assert (set(shape.scheme.split(",")), shape.sliding_windows) == (set(scheme.split(",")), windows)


@pytest.mark.parametrize("count", [5, 8])
def test_every_fourth_layer_of_a_cwm_has_no_window(count):
    told = SIZES["cwm"] | {"num_hidden_layers": count, "layer_types": None}
    kinds = transformers.CONFIG_MAPPING["cwm"](**told).layer_types
    found = family_of("cwm").read_config(told, ()).layer_windows
    assert found == [3 if kind == "sliding_attention" else None for kind in kinds]
    whole = told | {"layer_types": ["full_attention"] * count, "sliding_window": 0}
    assert set(family_of("cwm").read_config(whole, ()).layer_windows) == {None}


@pytest.mark.parametrize(
    ("family", "told", "match"),
    [
        ("hy_v3", {"mlp_bias": True}, "mlp_bias, which of experts only .* needs a model without them; got both"),
        ("hy_v3", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must have a kind for each of 2 layers; got"),
        ("mellum", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must have a kind for each of 2 layers; got"),
        ("mellum", {"num_experts": 0}, "num_local_experts must be above zero, and fit the weights; got 0"),
        ("mellum", {"rope_parameters": {"full_attention": NEAR}}, "of sliding_attention must be an object; got None"),
        ("mellum", {"rope_parameters": NEAR}, "rope_parameters of full_attention must be an object; got None"),
        ("mellum", {"sliding_window": None}, "layer_types with sliding_attention need a sliding_window"),
        ("iquestcoder", {"clip_qkv": 1.0}, "iquestcoder is supported with clip_qkv=None only; got 1.0"),
        ("iquestcoder", {"use_sliding_window": True}, "is supported with use_sliding_window=False only; got True"),
        ("cwm", {"sliding_window": 0}, "layer_types with sliding_attention need a sliding_window"),
        ("hyperclovax", {"attention_multiplier": 0}, "attention_multiplier in config.json must be above zero; got 0"),
        ("granite", {"attention_multiplier": None}, "attention_multiplier in config.json must be a finite number"),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_name(family, told, match):
    with pytest.raises(ValueError, match=match):
        family_of(family).read_config(SIZES[family] | told, ())


@pytest.mark.parametrize("family", LLAMA_LIKE)
def test_heads_must_divide_the_width_where_transformers_says_so(family):
    told = {"hidden_size": 18, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
    if "mamba_n_heads" in SIZES[family]:
        # those divide twice the width
        told |= {"mamba_n_heads": 4, "mamba_d_head": 9}
    if "mamba_d_ssm" in SIZES[family]:
        told |= {"mamba_d_ssm": 36}
    divide, kind = family_of(family).heads_divide_width, transformers.CONFIG_MAPPING[family_of(family).model_type]
    with pytest.raises(Exception, match=r"\(18\) is not a multiple of .* heads") if divide else nullcontext():
        kind(**SIZES[family] | told)


def test_a_width_that_heads_do_not_divide_is_not_saved(tmp_path):
    sizes = {"vocabulary": 11, "width": 18, "layers": 1, "heads": 4, "head_width": 8, "norm_eps": 1e-6}
    model = Decoder(Shape(**sizes, feedforward="swiglu", tie_embeddings=False))
    with pytest.raises(ValueError, match=r"width must be a multiple of heads in a llama, .*; got 18 and 4; choose"):
        save(model, tmp_path, "llama")
    assert not list(tmp_path.iterdir())
    save(model, tmp_path, "mistral")
    assert json.loads((tmp_path / "config.json").read_text())["hidden_size"] == 18
    agrees(tmp_path)
