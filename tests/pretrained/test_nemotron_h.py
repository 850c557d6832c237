"""Published models whose layers are one mixer or one feed-forward: what is particular to them."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import NemotronHConfig, NemotronHForCausalLM

from ordinate import Cache, Decoder, Geometry, Shape, generate, load, save
from ordinate.models.expert_options import ExpertOptions
from ordinate.pretrained import verify
from ordinate.pretrained.verification.theirs import with_cache

SIZES = {"vocab_size": 29, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
SIZES |= {"intermediate_size": 12, "mamba_num_heads": 4, "mamba_head_dim": 5, "ssm_state_size": 6, "n_groups": 2}
SIZES |= {"n_routed_experts": 6, "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 14}
SIZES |= {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
SIZES |= {"layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "mlp"]}
IDS = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))
LEFT = torch.arange(11) >= torch.tensor([[4], [0]])


def written(folder, **settings):
    """A model of transformers with numbers that show, in a folder."""
    torch.manual_seed(0)
    model = NemotronHForCausalLM(NemotronHConfig(**(SIZES | settings))).eval()
    model.set_experts_implementation("eager")
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.linspace(0, 0.5, len(buffer)).flip(0))
    model.save_pretrained(folder)
    return model


def change(folder, *without, **settings):
    path = folder / "config.json"
    said = {name: value for name, value in json.loads(path.read_text()).items() if name not in without}
    path.write_text(json.dumps(said | settings))


def near(out, expected):
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("real", [LEFT, LEFT.flip(1)])
@torch.no_grad()
def test_padding_on_either_side_is_that_of_transformers(tmp_path, real):
    there = written(tmp_path)
    expected = there(IDS, attention_mask=real.long()).logits
    near(load(tmp_path)(IDS, Geometry.padded(real))[real], expected[real])


@torch.no_grad()
def test_padded_rows_go_on_from_a_cache_as_in_transformers(tmp_path):
    there = written(tmp_path)
    here, cache, kept = load(tmp_path), Cache(), None
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 11)):
        told = {"attention_mask": LEFT.long()[:, :stop]}
        came, kept = with_cache(there, kept, input_ids=IDS[:, start:stop], **told)
        out = here(IDS[:, start:stop], Geometry.padded(LEFT[:, :6]) if start == 0 else None, cache)
        near(out[LEFT[:, start:stop]], came.logits[LEFT[:, start:stop]])


@torch.no_grad()
def test_packed_texts_are_as_alone_in_transformers(tmp_path):
    there = written(tmp_path)
    out = load(tmp_path)(IDS[:1], Geometry.packed([4, 7]))
    near(out, torch.cat([there(part).logits for part in IDS[:1].split([4, 7], 1)], 1))


@torch.no_grad()
def test_greedy_writing_is_that_of_transformers(tmp_path):
    there = written(tmp_path)
    told = {"attention_mask": torch.ones(1, 9).long(), "do_sample": False, "pad_token_id": 0}
    expected = there.generate(IDS[:1, :9], max_new_tokens=12, **told)[:, 9:]
    assert torch.equal(torch.cat(list(generate(load(tmp_path), IDS[:1, :9], 12, temperature=0)), 1), expected)


def test_verify_agrees_in_outputs_gradients_and_decoding(tmp_path):
    written(tmp_path)
    found = verify(tmp_path, checks=["outputs", "gradients", "decoding"])
    assert found.agrees, found.to_dict()


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
    model = Decoder(Shape(29, 16, **(told | options))).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model


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
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    there.set_experts_implementation("eager")
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
