"""Published Jamba models: what is particular to them."""

import json

import pytest
import torch
from transformers import JambaConfig, JambaForCausalLM

from ordinate import Cache, Decoder, Geometry, Shape, load, save
from ordinate.models.expert_options import ExpertOptions

SIZES = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "mamba_d_state": 6}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4, "attn_layer_period": 4}
SIZES |= {"attn_layer_offset": 1, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
IDS = torch.randint(29, (2, 9), generator=torch.Generator().manual_seed(0))


def written(folder, **settings):
    """A model of transformers with numbers that show, in a folder."""
    torch.manual_seed(0)
    model = JambaForCausalLM(JambaConfig(**SIZES | settings)).eval()
    model.set_experts_implementation("eager")
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def change(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


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
    torch.testing.assert_close(here(IDS), there(IDS).logits, rtol=1e-4, atol=1e-4)
    steps = torch.cat([here(token, cache=cache) for token in IDS.split(1, 1)], 1)
    torch.testing.assert_close(steps, here(IDS), rtol=1e-4, atol=1e-4)
    save(here, tmp_path / "again", "jamba")
    again = JambaForCausalLM.from_pretrained(tmp_path / "again").eval()
    again.set_experts_implementation("eager")
    torch.testing.assert_close(again(IDS).logits, there(IDS).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_without_attention_is_read_and_not_written(tmp_path):
    there, here = written(tmp_path, attn_layer_period=8, attn_layer_offset=6), load(tmp_path)
    torch.testing.assert_close(here(IDS), there(IDS, use_cache=False).logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="can only be called on Attention layers"):
        there(IDS)
    with pytest.raises(ValueError, match="a jamba has attention in some layer, or transformers does not run it"):
        save(here, tmp_path / "again", "jamba")


@torch.no_grad()
def test_padding_on_the_left_is_zeroed_as_there(tmp_path):
    there = written(tmp_path)
    real = torch.arange(9) >= torch.tensor([[4], [0]])
    ours, theirs = load(tmp_path)(IDS, Geometry.padded(real)), there(IDS, attention_mask=real.long()).logits
    torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-4)


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
