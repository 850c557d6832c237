"""Published models with gated DeltaNet in some layers: what is particular to them."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM

from ordinate import Decoder, Shape, load, save
from ordinate.pretrained.grouped_rows import GroupedRows

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, written, read_there, change, near = (MIXED[name] for name in ("IDS", "written", "read_there", "change", "near"))
NAMES = ["qwen3_next", "qwen3_5_text"]
DELTA = "gated_deltanet:heads=4,key_width=5,value_ratio=2,taps=3,variant.key_heads=2,variant.norm_eps=1e-06"
GATED = "softmax:variant.qk_norm=true,variant.norm_eps=1e-06,variant.qk_norm_zero_centred=true"
GATED += ",variant.output_gate=true"
OWN = {"norm_eps": 1e-6, "zero_centred_norm": True, "feedforward": "swiglu", "head_width": 8}


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize(
    ("settings", "linear"),
    [
        ({}, [True, True, True, False]),
        ({"full_attention_interval": 2}, [True, False, True, False]),
        ({"layer_types": ["attention", "mamba", "linear_attention", "full_attention"]}, [False, True, True, False]),
        ({"layer_types": ["full_attention"] * 4}, [False] * 4),
    ],
)
@torch.no_grad()
def test_the_mixer_of_each_layer_is_that_of_its_type(tmp_path, family, settings, linear):
    there = written(tmp_path, family, **settings)
    # as published files have it, without the types that transformers writes out
    said = json.loads((tmp_path / "config.json").read_text())
    said |= settings
    if "layer_types" not in settings:
        del said["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    here = load(tmp_path)
    assert [type(block.mixer).__name__ == "GatedDeltaNet" for block in here.blocks] == linear
    assert [name == "none" for name in here.shape.scheme_spec.entries] == (linear if any(linear) else [False])
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
def test_a_model_of_linear_attention_only_is_read_without_sizes_of_attention(tmp_path):
    types = ["linear_attention"] * 4
    there = written(tmp_path, "qwen3_next", layer_types=types, num_attention_heads=5, num_key_value_heads=5)
    here = load(tmp_path)
    assert here.shape.heads == 1
    # the cache of transformers needs a layer with attention; in float32 its rounding errors reach 2e-4
    near(load(tmp_path).double()(IDS), there.double()(IDS, use_cache=False).logits)
    save(here, tmp_path / "again", "qwen3_next")
    assert load(tmp_path / "again").shape == here.shape


@torch.no_grad()
def test_layers_for_later_tokens_and_images_are_not_read_and_a_language_model_inside_another_is(tmp_path):
    there = written(tmp_path, "qwen3_5_text")
    path = tmp_path / "model.safetensors"
    tensors = {name.replace("model.", "model.language_model.", 1): x for name, x in load_file(path).items()}
    tensors |= {name: torch.zeros(3) for name in ("mtp.norm.weight", "model.visual.patch_embed.proj.weight")}
    save_file(tensors, path, metadata={"format": "pt"})
    near(load(tmp_path)(IDS), there(IDS).logits)
    near(Qwen3_5ForCausalLM.from_pretrained(tmp_path).eval()(IDS).logits, there(IDS).logits)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden_act": "sigmoid"}, "hidden_act of a qwen3_next must take 0 to 0.*; got 'sigmoid'"),
        ({"hidden_act": "prelu"}, "no hidden_act is named 'prelu'"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types must have one for each of the 4 layers; got"),
        ({"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, "layer_types must be linear_attention or"),
        (
            {"layer_types": None, "full_attention_interval": 0},
            "full_attention_interval in config.json must be above zero; got 0",
        ),
        ({"linear_num_key_heads": 3}, "linear_num_key_heads must divide linear_num_value_heads; got 3 and 4"),
        ({"linear_num_key_heads": 0}, "linear_num_key_heads in config.json must be above zero; got 0"),
        ({"linear_value_head_dim": -1}, "linear_value_head_dim in config.json must be above zero; got -1"),
        ({"linear_num_value_heads": 10**6}, "linear_num_value_heads in config.json must fit the weights"),
        ({"linear_key_head_dim": 6}, r"in_proj_qkvz.weight must have shape \(72, 16\)"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path, "qwen3_next")
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "kv_heads": 1, "mixer": f"{DELTA},{DELTA},{GATED}", "scheme": "none,none,rope:rotary_dim=4"}
    return Decoder(Shape(29, 16, **({"layers": 3} | told | OWN | options))).eval()


SHORT = DELTA.replace("value_ratio=2,", "")
ONLY = {"scheme": "none", "head_width": None, "heads": 1, "kv_heads": 1}


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        # options that equal their defaults are left out
        {"mixer": f"{SHORT},{GATED},{SHORT}", "scheme": "none,rope,none"},
        {"mixer": "gated_deltanet:key_width=5,variant.norm_eps=1e-06", **ONLY},
        {"mixer": "gated_deltanet:variant.norm_eps=1e-06", **ONLY},
    ],
)
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, family, options):
    model = made(**options)
    save(model, tmp_path, family)
    there = read_there(tmp_path)
    near(model(IDS), there(IDS, use_cache=False).logits)
    again = load(tmp_path)
    assert torch.equal(again(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixer": f"{DELTA},{DELTA},{DELTA},{GATED}".replace("taps=3", "taps=4", 1), "layers": 4,
          "scheme": "none,none,none,rope"}, "the same gated DeltaNet in all layers"),
        ({"mixer": f"{DELTA},{GATED}," + GATED.replace("1e-06", "1e-05"),
          "scheme": "none,rope,rope"}, "one kind of attention"),
        ({"mixer": f"{DELTA},{GATED},{GATED}", "scheme": "none,rope,rope:theta=100.0"}, "one kind of attention"),
        ({"mixer": f"{DELTA},{DELTA},{GATED}".replace("taps=3", "taps=3,gate=false")}, "has gates .*got gate=False"),
        ({"mixer": f"{DELTA},{DELTA},{GATED}".replace("taps=3", "taps=3,negative_eigenvalues=true")}, "negative_eig"),
        ({"mixer": f"{DELTA},{DELTA},{GATED}".replace("heads=2,variant.norm_eps=1e-06", "heads=2")}, "the norm_eps"),
        ({"feedforward": "geglu"}, "activation of its feedforward"),
        ({"mixer": f"{DELTA},{DELTA},softmax"}, "a qwen3_next requires the mixer 'softmax:variant.qk_norm=true"),
        ({"mixer": f"{DELTA},{DELTA},{GATED}", "scheme": "sinusoidal,none,rope"}, "and none in the other layers"),
    ],
)  # fmt: skip
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, "qwen3_next")


def test_rows_in_groups_are_read_in_order_and_written_beside_zeros():
    rows, shape = torch.arange(12.0)[:, None], Shape(29)
    first, others = (GroupedRows("a", ("b",), 2, (1, 2, 3), chosen) for chosen in ((0, 2), (1,)))
    assert first.read([rows], shape).flatten().tolist() == [0, 6, 3, 4, 5, 9, 10, 11]
    assert others.read([rows], shape).flatten().tolist() == [1, 2, 7, 8]
    back = [rule.write(rule.read([rows], shape), shape)[0] for rule in (first, others)]
    assert back[1].flatten().tolist() == [0, 1, 2, 0, 0, 0, 0, 7, 8, 0, 0, 0]
    assert torch.equal(sum(back), rows)
