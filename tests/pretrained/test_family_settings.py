"""Settings of single families: those that are refused by name, warnings, and other names of tensors."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape
from ordinate.models import ExpertOptions
from ordinate.pretrained import verify
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LONG |= {"original_max_position_embeddings": 16, "short_mscale": 1.2, "long_mscale": 1.2}
PARTIAL = {"rope_type": "default", "rope_theta": 1e4}
LLAMA3 = PARTIAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WINDOW_TYPES = ("full_attention", "sliding_attention")
ATTENTION = {"rope_theta": 1e4, "clip_qkv": 1.0}


def agrees(folder):
    found = verify(folder, checks=["outputs"])
    assert found.agrees, found.to_dict()


@pytest.mark.parametrize(
    ("family", "config", "match"),
    [
        (
            "gpt_bigcode",
            {"add_cross_attention": True},
            "add_cross_attention needs multi_query=False; got multi_query=Tr",
        ),
        ("codegen", {"n_embd": 18, "n_head": 1}, "n_embd of a codegen must be divisible by 4, .*; got 18; load"),
        (
            "internlm3",
            {"attention_bias": True},
            r"attention_bias \(qkv_bias\) and mlp_bias \(bias\) .*; got True and False",
        ),
        ("internlm3", {"bias": True}, "must be the same, as in transformers; got False and True; load another"),
        (
            "granite_swa",
            {"layer_rope_theta": [1.0]},
            r"layer_rope_theta must have .* each of 2 layers; got \[1.0\]; load",
        ),
        ("granite_swa", {"layer_rope_theta": [1.0, -1.0]}, "a number of at least 0 for each of 2 layers; got"),
        ("granitemoe_swa", {"sliding_window": None}, "layer_types with sliding_attention need a sliding_window"),
        ("exaone_moe", {"mlp_layer_types": ["sparse"]}, "mlp_layer_types must have a kind for each of 2 layers; got"),
        ("exaone_moe", {"num_experts": 7}, "n_group must divide num_experts, .*; got num_experts=7, n_group=2"),
        (
            "mimo_v2_flash",
            {"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_theta": 9.0}}},
            "rope_parameters of full_attention must have a rope_theta; got {}; correct",
        ),
        ("cohere2_moe", {"rope_parameters": {}}, "rope_parameters must have a rope_theta; got {}; correct it"),
        ("cohere2_moe", {"rope_parameters": {"factor": 2.0}}, "rope_parameters must have a rope_theta; got"),
        (
            "cohere2_moe",
            {"sliding_window_pattern": 0, "layer_types": None},
            "sliding_window_pattern must be above zero",
        ),
        (
            "cohere2_moe",
            {"expert_selection_fn": "relu"},
            "no expert_selection_fn is named 'relu'; there are: sigmoid,",
        ),
        (
            "cohere2_moe",
            {"shared_expert_combination_strategy": "mean"},
            "combination_strategy is named 'mean'; there",
        ),
        (
            "laguna",
            {"moe_apply_router_weight_on_input": True},
            "supported with moe_apply_router_weight_on_input=False",
        ),
        (
            "laguna",
            {"rope_parameters": {kind: {"rope_type": [1], "rope_theta": 9.0} for kind in WINDOW_TYPES}},
            r"rope_type must be the name of a type of RoPE; got \[1\]; ",
        ),
        ("laguna", {"gating": "none"}, "gating must be true or false, or per-head or per-element; got 'none'; load"),
        (
            "laguna",
            {"num_attention_heads_per_layer": [2]},
            r"must have a number for each of 2 layers; got \[2\]; correct",
        ),
        ("laguna", {"mlp_layer_types": ["sparse"] * 3}, "mlp_layer_types must have a kind for each of 2 layers; got"),
        ("mimo_v2_flash", {"rope_parameters": {"rope_theta": 9.0}}, "of .*_attention must be an object; got None;"),
        (
            "mimo_v2_flash",
            {"sliding_window_size": 2.5},
            "sliding_window_size must be a whole number, or null; got 2.5",
        ),
        ("mimo_v2_flash", {"mlp_layer_types": ["sparse"]}, "mlp_layer_types must have a kind for each of 2 layers"),
        ("afmoe", {"num_shared_experts": 0}, "num_shared_experts in config.json must be above zero; got 0; correct"),
        ("afmoe", {"global_attn_every_n_layers": 0, "layer_types": None}, "global_attn_every_n_layers .*; got 0;"),
        ("exaone_moe", {"num_shared_experts": None}, "num_shared_experts in config.json must be a whole number"),
        ("solar_open", {"num_experts_per_tok": 4}, "topk_group groups have num_experts_per_tok experts; got"),
        (
            "phimoe",
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_type of a phimoe must be default or longr",
        ),
        (
            "phimoe",
            {"rope_scaling": LONG | {"long_mscale": 1.3}},
            "short_mscale and long_mscale .*; got 1.2, 1.3; load",
        ),
        (
            "phimoe",
            {"rope_scaling": LONG | {"short_mscale": "x"}},
            "must be the same number above zero; got 'x', 1.2",
        ),
        ("phimoe", {"num_local_experts": 1}, "num_local_experts of a phimoe must be above 1; got 1; load"),
        ("phimoe", {"router_jitter_noise": -0.1}, "jitter must be a number of at least 0, .*; got -0.1"),
        (
            "hunyuan_v1_moe",
            {"moe_topk": [1, 2]},
            r"moe_topk must be one number for all layers, .*; got \[1, 2\] of 4",
        ),
        ("hunyuan_v1_moe", {"moe_topk": [1]}, r"one number for all layers, of at most num_experts; got \[1\] of 4"),
        ("hunyuan_v1_moe", {"moe_topk": 5}, "of at most num_experts; got 5 of 4; load another"),
        ("dbrx", {"attn_config": {}}, "clip_qkv of attn_config must be a number above zero; got None; load"),
        (
            "dbrx",
            {"attn_config": ATTENTION | {"kv_n_heads": "x"}},
            "kv_n_heads in config.json must be a whole number",
        ),
        ("dbrx", {"tie_word_embeddings": True}, "dbrx is supported with tie_word_embeddings=False only; got True"),
        (
            "dbrx",
            {"ffn_config": {"moe_normalize_expert_weights": 2.0}},
            "moe_normalize_expert_weights must be 1, .*, or null; got 2.0; load",
        ),
        ("dbrx", {"ffn_config": {"moe_top_k": 5}}, "moe_top_k must be at most moe_num_experts; got 5 of 4; load"),
        ("dbrx", {"ffn_config": {"ffn_act_fn": {"name": "prelu"}}}, "no ffn_act_fn is named 'prelu'; there are"),
        ("xglm", {"pad_token_id": 2}, "pad_token_id of an xglm must be below 2: .*; got 2; load another"),
        (
            "gemma2",
            {"layer_types": ["full_attention"]},
            r"layer_types must have one for each of the 2 layers; got \['",
        ),
        ("gpt2", {"n_embd": 1}, "a head must have a channel or more; it has none; correct"),
        ("granite", {"hidden_size": 1}, "a head must have a channel or more; it has none; correct"),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": 7}},
            "of full_attention must be an object, or null; got",
        ),
        *(
            (
                "phi",
                {"rope_parameters": PARTIAL | {"partial_rotary_factor": value}},
                f"partial_rotary_factor of .*{end}",
            )
            for value, end in (([1], "number; got"), (float("inf"), "number; got inf"), (-1, "must not be negative"))
        ),
        (
            "llama",
            {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": False}},
            "original_max_position_embeddings of rope_parameters must be a whole number; got False; correct it",
        ),
        (
            "llama",
            {"rope_parameters": PARTIAL | {"rope_theta": None}},
            "rope_theta of .* must be a finite number; got",
        ),
        ("llama", {"max_position_embeddings": 1 << 62}, r"must be below 2\^62; got max_position_embeddings=4611"),
        ("openai_gpt", {"afn": "tanh"}, "no afn is named 'tanh'; there are: gelu, relu, silu, swish"),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_name(family, config, match):
    with pytest.raises(ValueError, match=match):
        family_of(family).read_config(FIELDS[family][0] | config, ())


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("granite_swa", {}),
        ("granitemoe_swa", {}),
        ("exaone_moe", {}),
        ("exaone_moe", {"sliding_window_pattern": 3}),
        ("afmoe", {}),
        ("mimo_v2_flash", {}),
        ("cohere2_moe", {"sliding_window_pattern": 3, "first_k_dense_replace": 0}),
        ("cohere2_moe", {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 2}),
        ("afmoe", {"global_attn_every_n_layers": 3}),
    ],
)
def test_layers_have_the_windows_that_transformers_gives_them(family, told):
    config = FIELDS[family][0] | {"num_hidden_layers": 11, "sliding_window": 5, "layer_types": None} | told
    theirs = transformers.CONFIG_MAPPING[family](**config).layer_types
    found = family_of(family).read_config(config, ()).layer_windows
    assert found == [5 if kind == "sliding_attention" else None for kind in theirs]


SIZES = {"vocabulary": 19, "width": 16, "layers": 2, "heads": 2, "hidden": 12, "norm_eps": 1e-5}
GATED = SIZES | {"feedforward": "swiglu", "tie_embeddings": False}
SPARSE = {"experts": ExpertOptions(4, scores="sparsemixer", normalise=False), "norm": "layer"}
LAYERED = SIZES | {"norm": "layer", "bias": ("norm", "feedforward")}


@pytest.mark.parametrize(
    ("family", "fields", "match"),
    [
        (
            "gpt_bigcode",
            LAYERED | {"scheme": "learned"},
            "a gpt_bigcode requires scheme learned and mixer softmax:var",
        ),
        (
            "gpt_bigcode",
            LAYERED | {"scheme": "learned", "heads": 4, "kv_heads": 2, "mixer": "softmax:variant.bias=true"},
            "a gpt_bigcode has one key head, or one for each query head; got 2 for 4; use",
        ),
        (
            "gpt2",
            LAYERED | {"scheme": "learned", "kv_heads": 1, "mixer": "softmax:variant.bias=true"},
            "a gpt2 has a key head for each query head; got 1 for 2; use save_pretrained",
        ),
        (
            "codegen",
            LAYERED,
            "a codegen requires norm_position shared, mixer softmax, and rope with theta 10000; got",
        ),
        (
            "phimoe",
            GATED | {"experts": ExpertOptions(4), "norm": "layer"},
            "has experts with scores='sparsemixer'; got",
        ),
        (
            "phimoe",
            GATED | SPARSE | {"scheme": "rope:spectrum=linear,spectrum.factor=2"},
            "a phimoe requires the scheme rope, plain or longrope with equal short_factor and long_factor; got rope:",
        ),
        (
            "granite_swa",
            GATED | {"mixer": "softmax:variant.sinks=true", "scheme": "rope,rope:spectrum=linear,spectrum.factor=2"},
            "the layers of a granite_swa have rope or none, and may differ in its theta only; got rope,",
        ),
        (
            "solar_open",
            GATED
            | {"experts": ExpertOptions(4, scores="sigmoid", choice_bias=True, dense_layers=(0,), shared_hidden=12)},
            r"a solar_open has experts in every layer; got none in layers \[0\]; use",
        ),
        (
            "hunyuan_v1_moe",
            GATED
            | {"experts": ExpertOptions(4)}
            | {"mixer": "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_after=true"},
            "has experts in every layer, and a shared network of the width of one; got experts=",
        ),
        (
            "dbrx",
            GATED | {"experts": ExpertOptions(4)},
            "a dbrx requires the mixer softmax with clip_qkv only, .*; got",
        ),
        (
            "laguna",
            GATED,
            "a laguna requires the mixers .*gate_kind=softplus,softmax:.*gate_kind=softplus', of any number of",
        ),
        (
            "cohere2_moe",
            GATED | {"norm_position": "shared", "norm": "layer"},
            "a cohere2_moe has rms norms, or layer norms without biases; got norm=layer, bias=.*; use",
        ),
        (
            "cohere2_moe",
            GATED | {"norm_position": "shared", "experts": ExpertOptions(4, normalise=False)},
            "experts of a cohere2_moe have scores of sigmoids, or of a softmax with normalise=True; got",
        ),
        (
            "mimo_v2_flash",
            GATED | {"sliding_windows": (None, 4), "kv_heads": 1},
            "requires the mixers 'softmax,softmax:kv_heads=2,variant.sinks=true', .* where there is a window; got",
        ),
        (
            "mimo_v2_flash",
            GATED | {"sliding_windows": (4,), "kv_heads": 1, "mixer": "softmax:variant.sinks=true"},
            "a mimo_v2_flash with windows in all layers has an even number of key heads; got kv_heads=1; use",
        ),
        (
            "afmoe",
            GATED
            | {"norm_position": "peri", "experts": ExpertOptions(4, scores="sigmoid", shared_hidden=12)}
            | {"mixer": "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.output_gate=true"},
            "an afmoe has experts with normalise=True, a choice_bias and one group; got",
        ),
        (
            "biogpt",
            LAYERED,
            "a biogpt requires scheme learned and mixer softmax:variant.bias=true; got rope, softmax",
        ),
        ("xglm", LAYERED, "an xglm requires scheme sinusoidal:form=tensor2tensor,.* and mixer .*; got rope, softmax"),
        (
            "openai_gpt",
            LAYERED,
            "an openai-gpt requires scheme learned, .* norm_position post and hidden 4 .*; got rope",
        ),
        (
            "nanochat",
            GATED,
            "a nanochat requires relu2 or another plain feedforward, nonparametric_rms norms, .*; got",
        ),
    ],
)
def test_a_shape_that_a_family_does_not_have_is_not_saved(family, fields, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        save(Decoder(Shape(**fields)), tmp_path, family)


@pytest.mark.parametrize(("family", "more"), [("gpt_bigcode", {"multi_query": False}), ("xglm", {})])
def test_cross_attention_is_left_out_with_a_warning(family, more, made):
    folder = made(family, "ForCausalLM", add_cross_attention=True, **more)
    with pytest.warns(UserWarning, match="cross-attention is not loaded: it is used only together with an encoder"):
        load(folder)
    with pytest.warns(UserWarning, match="cross-attention is not loaded"):
        agrees(folder)
    with pytest.raises(ValueError, match=r"got unexpected .*(crossattention|encoder_attn)"):
        load(made(family, "ForCausalLM", {"add_cross_attention": False}, add_cross_attention=True, **more))


def test_a_theta_of_dbrx_that_has_no_effect_is_told(made):
    folder = made("dbrx", "ForCausalLM", attn_config=ATTENTION | {"rope_theta": 5e5})
    with pytest.warns(
        UserWarning, match=r"rope_theta of attn_config \(500000.0\) has no effect, .* theta is 10000.0"
    ):
        assert load(folder).shape.scheme == "rope:theta=10000.0"
    agrees(made("dbrx", "ForCausalLM"))


@pytest.mark.parametrize(
    ("family", "told", "key"),
    [
        ("dbrx", {"ffn_config": {"ffn_hidden_size": 2**63 + 1}}, "ffn_hidden_size"),
        ("dbrx", {"ffn_config": {"moe_num_experts": 10**12 + 1}}, "moe_num_experts"),
        ("dbrx", {"attn_config": ATTENTION | {"kv_n_heads": 2**63 + 1}}, "kv_n_heads"),
        ("xglm", {"attention_heads": 2**63 + 1}, "attention_heads"),
        ("exaone_moe", {"num_shared_experts": 2**63 + 1}, "num_shared_experts"),
        ("hunyuan_v1_moe", {"num_experts": 2**63 + 1}, "num_experts"),
    ],
)
def test_a_size_that_no_tensor_can_have_is_refused_by_its_name(family, told, key, made):
    folder = made(family, "ForCausalLM", told)
    told = f"{key} in config.json must fit the weights; got .*; they have no|below 2.62; got {key}="
    with pytest.raises(ValueError, match=told):
        load(folder)


def renamed(folder, old, new):
    kept = {name.replace(old, new): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        ("exaone_moe", "mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"),
        ("mimo_v2_flash", "attention_sink_bias", "sinks"),
        ("laguna", "mlp.shared_expert.", "mlp.shared_experts."),
        ("laguna", "mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"),
        ("ernie4_5_moe", "mlp.moe_statics.", "mlp.gate.moe_statics."),
        ("phimoe", "block_sparse_moe.gate.weight", "mlp.router.weight"),
        ("granitemoe", "block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight"),
    ],
)
@torch.no_grad()
def test_names_of_tensors_that_transformers_reads_too_are_read(family, old, new, made):
    folder = made(family, "ForCausalLM")
    expected = load(folder).state_dict()
    assert any(old in name for name in load_file(folder / "model.safetensors"))
    renamed(folder, old, new)
    found = load(folder).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    renamed(folder, new, "elsewhere")
    with pytest.raises(ValueError, match=r"a checkpoint must contain every tensor .*; missing"):
        load(folder)


@pytest.mark.parametrize(
    ("family", "name"), [("exaone_moe", "mtp.layers.0"), ("mimo_v2_flash", "model.mtp.layers.0")]
)
def test_tensors_for_tokens_after_the_next_one_are_not_read(family, name, made):
    agrees(made(family, "ForCausalLM", tensors=lambda kept: {f"{name}.weight": torch.ones(3)}))


@pytest.mark.parametrize("before", [True, False])
def test_an_opt_without_a_last_norm_is_read_and_written(before, made, tmp_path):
    told = {"_remove_final_layer_norm": True, "do_layer_norm_before": before}
    folder = made("opt", "ForCausalLM", **told)
    model = load(folder)
    assert model.shape.final_norm is not before
    agrees(folder)
    save(model, tmp_path / "again", "opt")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["_remove_final_layer_norm"] is before
    agrees(tmp_path / "again")


def test_a_gpt_without_a_cache_is_compared_with_whole_texts(made):
    folder = made("openai_gpt", "ForCausalLM")
    found = verify(folder, checks=["decoding"])
    assert found.agrees, found.to_dict()


def test_an_internlm3_with_the_names_of_its_own_code_is_compared_with_its_config_class(made):
    folder = made("internlm3", "ForCausalLM", attention_bias=True, mlp_bias=True)
    said = json.loads((folder / "config.json").read_text())
    early = {"attention_bias": "qkv_bias", "mlp_bias": "bias"}
    named = {early.get(name, name): value for name, value in said.items()}
    (folder / "config.json").write_text(json.dumps(named | {"architectures": ["InternLM3ForCausalLM"]}))
    assert load(folder).shape.mixer == "softmax:variant.bias=true"
    agrees(folder)


def test_a_rope_scaling_of_cohere2_moe_has_no_effect_which_is_told(made):
    folder = made("cohere2_moe", "ForCausalLM", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    with pytest.warns(
        UserWarning, match=r"rope_scaling \(.*\) has no effect, as in transformers: give rope_parameters"
    ):
        assert load(folder).shape.scheme == "rope:theta=10000.0,layout=interleaved,none"
    with pytest.warns(UserWarning, match="rope_scaling .* has no effect"):
        agrees(folder)


def test_layers_of_a_laguna_have_their_own_numbers_of_heads(made):
    folder = made("laguna", "ForCausalLM", num_attention_heads=5, num_attention_heads_per_layer=[3, 4])
    model = load(folder)
    assert [block.mixer.heads for block in model.blocks] == [3, 4]
    # the number of the model is that of a layer
    assert (model.shape.heads, model.shape.kv_heads) == (3, 1)
    agrees(folder)
