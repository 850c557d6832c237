"""Published Jamba models: what is particular to them."""

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch

from ordinate import Cache, Decoder, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
IDS, read_there, change, near = (MIXED[name] for name in ("IDS", "read_there", "change", "near"))
written = partial(MIXED["written"], family="jamba")

# settings, layers with attention, layers with experts
LAYERS = [
    ({}, [1], [1, 3]),
    ({"attn_layer_period": 2, "attn_layer_offset": 0, "expert_layer_period": 1, "expert_layer_offset": 0},
     [0, 2], [0, 1, 2, 3]),
    ({"attn_layer_period": 3, "attn_layer_offset": 2, "expert_layer_period": 8, "expert_layer_offset": 6}, [2], []),
    ({"num_experts": 1, "attn_layer_period": 1, "attn_layer_offset": 0}, [0, 1, 2, 3], []),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "attending", "routed"), LAYERS)
@torch.no_grad()
def test_attention_and_experts_are_in_one_of_so_many_layers(tmp_path, settings, attending, routed):
    there = written(tmp_path, **settings)
    here, cache = load(tmp_path), Cache()
    kinds = [type(block.mixer).__name__ == "Softmax" for block in here.blocks]
    assert [layer for layer, attends in enumerate(kinds) if attends] == attending
    kinds = [type(block.feedforward).__name__ == "Experts" for block in here.blocks]
    assert [layer for layer, routes in enumerate(kinds) if routes] == routed
    near(here(IDS), there(IDS).logits)
    steps = torch.cat([here(token, cache=cache) for token in IDS.split(1, 1)], 1)
    near(steps, here(IDS))
    save(here, tmp_path / "again", "jamba")
    again = read_there(tmp_path / "again")
    near(again(IDS).logits, there(IDS).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_without_attention_is_read_and_not_written(tmp_path):
    there, here = written(tmp_path, attn_layer_period=8, attn_layer_offset=6), load(tmp_path)
    near(here(IDS), there(IDS, use_cache=False).logits)
    with pytest.raises(ValueError, match="can only be called on Attention layers"):
        there(IDS)
    with pytest.raises(ValueError, match="a jamba has attention in some layer, or transformers does not run it"):
        save(here, tmp_path / "again", "jamba")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden_act": "prelu"}, "no hidden_act is named 'prelu'; there are"),
        ({"attn_layer_offset": 4}, "attn_layer_offset must be smaller than attn_layer_period; got 4 and 4"),
        ({"expert_layer_offset": 2}, "expert_layer_offset must be smaller than expert_layer_period; got 2 and 2"),
        ({"expert_layer_period": 0}, "expert_layer_period in config.json must be above zero; got 0"),
        ({"mamba_dt_rank": "many"}, "mamba_dt_rank must be a whole number above zero, or 'auto'; got 'many'"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


MAMBA = "mamba:variant.norm=scaled,variant.norm_eps=1e-06"
EXPERTS = ExpertOptions(3, normalise=False, dense_layers=(0, 2))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"mixer": f"{MAMBA},softmax,softmax"},
            r"layers with attention of .* one of every so many; got layers \[1, 2",
        ),
        (
            {"experts": ExpertOptions(3, normalise=False, dense_layers=(2,))},
            r"with experts .*got layers \[0, 1\] of 3",
        ),
        ({"experts": ExpertOptions(3)}, "two experts at least, whose weights are not divided by their sum; got"),
        ({"experts": ExpertOptions(1, 1, normalise=False)}, "two experts at least, whose weights are not divided"),
        ({"mixer": f"mamba,softmax,{MAMBA}"}, "the same Mamba in all layers that have one"),
        ({"mixer": "mamba,softmax,mamba"}, "has scaled norms, the norm_eps of the model"),
        ({"norm_eps": 0.1}, "has scaled norms, the norm_eps of the model"),
        ({"feedforward": "geglu"}, "the activation of its feedforward"),
        (
            {"mixer": f"{MAMBA},variant.inner=20,softmax,{MAMBA},variant.inner=20"},
            "a multiple of the model's columns",
        ),
        ({"scheme": "none,rope,none"}, "a jamba has scheme none; got rope"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    usual = {"mixer": f"{MAMBA},softmax,{MAMBA}", "scheme": "none", "norm_eps": 1e-6, "feedforward": "swiglu"}
    told = {**usual, "experts": EXPERTS, **options}
    model = Decoder(Shape(vocabulary=29, width=16, layers=3, heads=2, **told))
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, "jamba")
