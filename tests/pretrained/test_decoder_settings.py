"""Settings of decoders and encoder-decoders in config.json, each with the numbers that it has in transformers."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.expert_options import ExpertOptions
from ordinate.pretrained import verify
from ordinate.pretrained.rope_parameters import rope_spec, spec_to_rope_parameters
from ordinate.pretrained.weights import family_for, family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]
PAIRS = ("t5", "mt5", "marian")
PHI_NORMS = "softmax:variant.bias=true,variant.qk_norm=true,variant.qk_norm_kind=layer,variant.norm_eps=1e-05"
SPARSE = ExpertOptions(4, normalise=False, dense_layers=(1,), dense_hidden=12)
ACROSS = "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_across=true"
GATED_BESIDE = ExpertOptions(4, shared_hidden=14, shared_gate=True)
UNGROUPED = ExpertOptions(
    *(5, 2, False),
    dense_layers=(0,),
    dense_hidden=12,
    scores="sigmoid",
    choice_bias=True,
    scale=1.5,
    shared_hidden=10,
)
SIGMOIDS = replace(UNGROUPED, count=6, normalise=True, groups=2, scale=2.5, shared_hidden=20)
YARN = "rope:theta=150000.0,spectrum=yarn,spectrum.factor=32.0,spectrum.trained_length=4096,spectrum.truncate=False"
LINEAR = "rope:theta=150000.0,spectrum=linear,spectrum.factor=2.0"
CAPPED = "softmax:variant.scale=0.5,variant.softcap=2.0"


def agrees(folder):
    found = verify(folder, checks=["outputs"])
    assert found.agrees, found.to_dict()


@pytest.mark.parametrize(
    ("family", "config", "field", "value"),
    [
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "norm_position", "residual"),
        ("bloom", {"slow_but_exact": True, "pretraining_tp": 3}, "bias", ("norm", "feedforward_in")),
        ("bloom", {"slow_but_exact": True, "pretraining_tp": 1}, "bias", ("norm", "feedforward")),
        ("bloom", {"slow_but_exact": False, "pretraining_tp": 3}, "bias", ("norm", "feedforward")),
        ("mpt", {"attn_config": {"clip_qkv": 0.5}}, "mixer", "softmax:variant.clip_qkv=0.5"),
        ("mpt", {"attn_config": {"clip_qkv": 0.0, "softmax_scale": 0.3}}, "mixer", "softmax:variant.scale=0.3"),
        ("mpt", {"attn_config": {"qk_ln": True, "prefix_lm": True}}, "mixer", "softmax"),
        ("mpt", {"attn_config": {"alibi": False, "alibi_bias_max": 4}}, "scheme", "alibi"),
        ("mpt", {"logit_scale": 0.5, "learned_pos_emb": True, "no_bias": False}, "scheme", "alibi"),
        ("gpt_neox", {"rotary_pct": 0.0}, "scheme", "none"),
        ("gpt_neox", {"rotary_pct": 0.4}, "scheme", "rope:theta=10000.0,rotary_dim=3"),
        ("gpt_neox", {"head_dim": 16}, "scheme", "rope:theta=10000.0,rotary_dim=4"),
        ("gpt_neox", {"head_dim": 4}, "scheme", "rope:theta=10000.0,rotary_dim=1"),
        (
            "gpt_neox",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10.0, "beta_fast": 3.0}},
            "scheme",
            "rope:theta=10.0,rotary_dim=2,spectrum=linear,spectrum.factor=2.0",
        ),
        (
            "llama",
            {"partial_rotary_factor": 0.9, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "scheme",
            "rope:theta=10000.0,rotary_dim=7,spectrum=linear,spectrum.factor=2.0",
        ),
        ("ministral", {"layer_types": None, "sliding_window": 3, "head_dim": 8}, "sliding_windows", (3,)),
        ("opt", {"do_layer_norm_before": False}, "norm_position", "post"),
        ("opt", {"word_embed_proj_dim": 8}, "embedding_width", 8),
        ("opt", {"word_embed_proj_dim": 24, "do_layer_norm_before": False}, "embedding_width", 24),
        ("opt", {"enable_bias": False}, "bias", ("norm",)),
        ("opt", {"layer_norm_elementwise_affine": False}, "norm", "nonparametric"),
        ("gpt_neo", {"attention_types": [[["local"], 1], [["global"], 1]]}, "sliding_windows", (3, None)),
        ("gpt_neo", {"attention_layers": ["local", "local"], "window_size": 1}, "sliding_windows", (1, 1)),
        ("gpt_neo", {"intermediate_size": 12}, "hidden", 12),
        (
            "phi",
            {"qk_layernorm": True},
            "mixer",
            PHI_NORMS,
        ),
        ("phi", {"partial_rotary_factor": 0.25}, "scheme", "rope:theta=10000.0,rotary_dim=2"),
        ("phi", {"partial_rotary_factor": 0.0}, "scheme", "none"),
        ("olmo", {"clip_qkv": 0.5}, "mixer", "softmax:variant.clip_qkv=0.5"),
        (
            "olmo",
            {"clip_qkv": 0.5, "attention_bias": True},
            "mixer",
            "softmax:variant.bias=true,variant.clip_qkv=0.5",
        ),
        ("stablelm", {"use_parallel_residual": True}, "norm_position", "shared"),
        (
            "stablelm",
            {"qk_layernorm": True, "use_qkv_bias": True, "num_attention_heads": 4, "partial_rotary_factor": 0.5},
            "mixer",
            "softmax:variant.bias=true,variant.out_bias=false,variant.qk_norm=true,"
            "variant.qk_norm_kind=layer_per_head,variant.norm_eps=1e-05",
        ),
        ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, "norm_position", "parallel"),
        (
            "falcon",
            {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "bias": True},
            "norm_position",
            "shared",
        ),
        ("falcon", {"multi_query": False, "bias": True}, "kv_heads", 6),
        ("falcon", {"parallel_attn": False}, "norm_position", "pre"),
        ("falcon", {"alibi": True}, "scheme", "alibi:bfloat16_factor=0.5"),
        # of which nothing is read then
        (
            "falcon",
            {"alibi": True, "rope_parameters": {"rope_type": "dynamic", "factor": 3.0}},
            "scheme",
            "alibi:bfloat16_factor=0.5",
        ),
        ("glm", {"partial_rotary_factor": 1.0}, "scheme", "rope:theta=10000.0,layout=interleaved"),
        ("glm4", {"attention_bias": False}, "mixer", "softmax"),
        # of the first files, which mean the tanh formula
        ("gemma", {"hidden_act": "gelu"}, "feedforward", "geglu_tanh"),
        ("gemma", {"hidden_act": "gelu_python"}, "feedforward", "geglu"),
        ("gemma2", {"attn_logit_softcapping": None, "query_pre_attn_scalar": 8}, "mixer", "softmax"),
        ("gemma2", {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}, "mixer", CAPPED),
        ("gemma2", {"final_logit_softcapping": None}, "logit_softcap", None),
        ("gemma2", {"sliding_window": 3, "layer_types": None}, "sliding_windows", (3, None)),
        ("gemma3_text", {"final_logit_softcapping": 1.5, "attn_logit_softcapping": 0.1}, "logit_softcap", 1.5),
        (
            "gemma3_text",
            {"rope_local_base_freq": 70.0, "rope_theta": 900.0},
            "scheme",
            "rope:theta=70.0,rope:theta=900.0",
        ),
        ("gemma3_text", {}, "scheme", "rope:theta=10000.0,rope:theta=1000000.0"),
        ("granite", {"residual_multiplier": 0.22, "logits_scaling": 49.0}, "residual_scale", 0.22),
        ("granite", {"embedding_multiplier": 12}, "embedding_scale", 12.0),
        ("granite", {"attention_multiplier": 0.25}, "mixer", "softmax:variant.scale=0.25"),
        ("granite", {"attention_multiplier": 8**-0.5}, "mixer", "softmax"),
        ("mixtral", {"num_experts": 3, "num_local_experts": 5}, "experts", ExpertOptions(3)),
        ("mixtral", {"num_experts_per_tok": 1, "output_router_logits": True}, "experts", ExpertOptions(4, 1)),
        ("mixtral", {"sliding_window": 3}, "sliding_windows", (3,)),
        ("qwen3_moe", {"num_local_experts": 3, "num_experts": 5}, "experts", ExpertOptions(3, normalise=False)),
        ("qwen3_moe", {"norm_topk_prob": True, "mlp_only_layers": [7]}, "experts", ExpertOptions(4)),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "experts", SPARSE),
        ("qwen3_moe", {"mlp_only_layers": [0, 1, 2], "moe_intermediate_size": 10**6}, "experts", None),
        ("qwen3_moe", {"num_experts": 0, "num_experts_per_tok": 10**6}, "experts", None),
        ("qwen3_moe", {"decoder_sparse_step": 4, "intermediate_size": 20}, "hidden", 20),
        ("qwen3_moe", {"moe_intermediate_size": 20, "intermediate_size": 10**6}, "hidden", 20),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 3}, "sliding_windows", (3,)),
        ("qwen3_moe", {"sliding_window": 3, "max_window_layers": 0}, "sliding_windows", (None,)),
        ("gpt_oss", {"swiglu_alpha": 1.0, "swiglu_limit": 0.3}, "experts", ExpertOptions(4, limit=0.3, slope=1.0)),
        ("olmoe", {"num_local_experts": 3, "norm_topk_prob": True}, "experts", ExpertOptions(3)),
        ("olmoe", {"clip_qkv": 0.5}, "mixer", f"{ACROSS},variant.clip_qkv=0.5,variant.clip_after_norm=true"),
        ("qwen2_moe", {"norm_topk_prob": True, "mlp_only_layers": [7]}, "experts", GATED_BESIDE),
        ("qwen2_moe", {"num_experts": 0, "shared_expert_intermediate_size": 10**6}, "experts", None),
        ("qwen2_moe", {"qkv_bias": False}, "mixer", "softmax"),
        ("qwen2_moe", {"qkv_bias": True}, "mixer", "softmax:variant.bias=true,variant.out_bias=false"),
        (
            "qwen2_moe",
            {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 3, "layer_types": None},
            "sliding_windows",
            (3, None, 3),
        ),
        ("granitemoe", {"num_local_experts": 3, "num_experts_per_tok": 1}, "experts", ExpertOptions(3, 1)),
        ("granitemoe", {"output_router_logits": True, "router_aux_loss_coef": 0.5}, "experts", ExpertOptions(4)),
        ("granitemoe", {"residual_multiplier": 0.22}, "residual_scale", 0.22),
        ("granitemoeshared", {"shared_intermediate_size": 0}, "experts", ExpertOptions(4)),
        ("granitemoeshared", {"shared_intermediate_size": 7}, "experts", ExpertOptions(4, shared_hidden=7)),
        ("glm4_moe", {"n_shared_experts": 2, "routed_scaling_factor": 2.5}, "experts", SIGMOIDS),
        ("glm4_moe", {"num_local_experts": 5, "n_group": 1, "norm_topk_prob": False}, "experts", UNGROUPED),
        ("glm4_moe", {"first_k_dense_replace": 5, "n_routed_experts": 10**6}, "experts", None),
        ("glm4_moe", {"use_qk_norm": True}, "mixer", "softmax:variant.qk_norm=true,variant.norm_eps=1e-05"),
        ("glm4_moe", {"attention_bias": True}, "mixer", "softmax:variant.bias=true,variant.out_bias=false"),
        ("glm4_moe", {"partial_rotary_factor": 1.0}, "scheme", "rope:theta=10000.0"),
        ("glm4_moe", {"rope_theta": 90.0}, "scheme", "rope:theta=90.0,rotary_dim=4"),
        ("dots1", {"sliding_window": 3, "max_window_layers": 1}, "sliding_windows", (None, 3)),
        ("dots1", {"sliding_window": None, "max_window_layers": 0}, "sliding_windows", (None,)),
        ("gpt_oss", {"hidden_act": "gelu"}, "feedforward", "swiglu"),
        ("gpt_oss", {"attention_bias": False}, "mixer", "softmax:variant.sinks=true"),
        ("gpt_oss", {"layer_types": None}, "sliding_windows", (3, None)),
        ("gpt_oss", {"rope_parameters": None}, "scheme", YARN),
        ("gpt_oss", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "scheme", LINEAR),
        ("gpt_oss", {"rope_parameters": {}, "rope_theta": 90.0}, "scheme", "rope:theta=90.0"),
        ("t5", {"is_gated_act": None, "scale_decoder_outputs": None}, "logit_scale", 1.0),
        ("t5", {"relative_attention_num_buckets": 7}, "scheme", "t5:buckets=7,max_distance=40"),
        ("marian", {"encoder_attention_heads": 4, "decoder_attention_heads": 1}, "source_heads", 4),
        ("marian", {"encoder_ffn_dim": 20}, "source_hidden", 20),
        ("marian", {"decoder_vocab_size": 25}, "vocabulary", 19),
        ("marian", {"tie_word_embeddings": False}, "tie_embeddings", False),
        ("marian", {"tie_word_embeddings": False}, "source_vocabulary", 19),
        (
            "marian",
            {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 25},
            "vocabulary",
            25,
        ),
    ],
)
def test_a_setting_has_the_outputs_that_it_has_in_transformers(family, config, field, value, made, tmp_path):
    folder = made(family, "ForSeq2SeqLM" if family in PAIRS else "ForCausalLM", **config)
    # a model is made with the setting, and its config.json says it again as it was given
    made_with = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**made_with, **config}))
    model = load(folder)
    assert getattr(model.shape, field) == value
    found = verify(folder, checks=["outputs", "left padding", "decoding", "gradients"])
    assert found.agrees, found.to_dict()
    if family == "llama":
        # a part of a head is rotated by other families only
        return
    save(model, tmp_path / "again", family)
    again = load(tmp_path / "again")
    assert getattr(again.shape, field) == value
    assert verify(tmp_path / "again", checks=["outputs"]).agrees


@pytest.mark.parametrize("head", ["ForCausalLM", "", "ForTokenClassification"])
def test_the_cross_attention_of_a_bert_is_left_out_with_a_warning(head, made, tmp_path):
    folder = made("bert", head, is_decoder=True, add_cross_attention=True)
    with pytest.warns(UserWarning, match="cross-attention is not loaded: it is used only together with an encoder"):
        model = load(folder)
    with pytest.warns(UserWarning, match="cross-attention is not loaded"):
        agrees(folder)
    save(model, tmp_path / "again", "bert")
    agrees(tmp_path / "again")
    with pytest.raises(ValueError, match=r"got unexpected .*crossattention\.output\.LayerNorm"):
        load(made("bert", head, {"add_cross_attention": False}, is_decoder=True, add_cross_attention=True))


def test_the_cross_attention_of_a_gpt2_is_left_out_with_a_warning(made, tmp_path):
    folder = made("gpt2", "ForCausalLM", add_cross_attention=True)
    with pytest.warns(UserWarning, match="cross-attention is not loaded: it is used only together with an encoder"):
        model = load(folder)
    with pytest.warns(UserWarning, match="cross-attention is not loaded"):
        agrees(folder)
    # its tensors are left out only where config.json says that there is one
    with pytest.raises(ValueError, match=r"got unexpected transformer\.h\.0\.crossattention\.c_attn"):
        load(made("gpt2", "ForCausalLM", {"add_cross_attention": False}, add_cross_attention=True))
    save(model, tmp_path / "again", "gpt2")
    agrees(tmp_path / "again")


def test_the_rotated_channels_of_a_gptj_are_an_even_number(made):
    for rotated, came in ((3, "got 3"), (10, "got 10")):
        with pytest.raises(
            ValueError, match=f"rotary_dim must be an even number of at most 8 channels; {came}; load"
        ):
            family_of("gptj").read_config(FIELDS["gptj"][0] | {"rotary_dim": rotated}, ())


@pytest.mark.parametrize(
    ("family", "config", "match"),
    [
        (
            "gpt2",
            {"layer_norm_epsilon": 1.0},
            r"layer_norm_epsilon in config\.json must be at least 0 and below 1; got 1",
        ),
        (
            "llama",
            {"rms_norm_eps": -1e-5},
            r"rms_norm_eps in config\.json must be at least 0 and below 1; got -1e-05",
        ),
        (
            "mpt",
            {"attn_config": {"softmax_scale": 0.0}},
            r"softmax_scale of attn_config must be above zero; got 0\.0",
        ),
        ("mpt", {"attn_config": {"clip_qkv": "x"}}, "clip_qkv of attn_config must be above zero; got 'x'; correct"),
        ("t5", {"relative_attention_num_buckets": 3}, "relative_attention_num_buckets must be at least 4, .*; got 3"),
        (
            "t5",
            {"relative_attention_max_distance": 4},
            "half of it below relative_attention_max_distance; got 8 and 4",
        ),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers must have an entry for each layer; got 1 for 2 layers"),
        (
            "gpt_neo",
            {"attention_types": [[["global"], 10**12]]},
            r"attention_types must be global or local for each of 2 layers; got \[\[\['global'\], 1000000000000\]\]",
        ),
        ("gpt_neo", {"attention_types": [["global", 2]]}, "attention_types must be .*; got .*; correct it in config"),
        (
            "gpt_neo",
            {"attention_layers": ["round", "local"]},
            r"attention_layers must be .*; got \['round', 'local'\]",
        ),
        ("phi", {"partial_rotary_factor": 0.9}, "must give an even number of channels of a head, .*; got 7 of 8"),
        (
            "stablelm",
            {"rope_parameters": {"rope_type": "proportional", "rope_theta": 100.0}},
            "all of them if proportional; got 4 of 16 channels, of rope_type 'proportional'; load",
        ),
        ("stablelm", {"head_dim": 4}, "stablelm is supported with head_dim=16 only; got 4"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "2 needs new_decoder_architecture, .*; got 2, False, True; load"),
        (
            "falcon",
            {"new_decoder_architecture": True, "parallel_attn": False},
            "and that needs parallel_attn; got None, True, False; load",
        ),
        (
            "falcon",
            {"rope_scaling": {"type": "yarn", "factor": 2.0}, "partial_rotary_factor": 0.9},
            "yarn needs an even number of rotated channels, as partial_rotary_factor .* says; got 3 of 4; load",
        ),
        (
            "gpt_neox",
            {"rope_scaling": {"type": "yarn", "factor": 2.0}, "rotary_pct": 0.4},
            "yarn needs an even number of rotated channels, .* or rotary_pct says; got 3 of 8; load",
        ),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts must be above zero, .*; got 0 for"),
        ("mixtral", {"num_experts_per_tok": 9}, "at most as many experts as there are; got chosen=9 of 4"),
        ("granitemoe", {"num_local_experts": 0}, "num_local_experts must be above zero, .*; got 0 for"),
        ("qwen2_moe", {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size .* above zero; got 0"),
        ("glm4_moe", {"n_shared_experts": 0}, r"n_shared_experts in config\.json must be above zero; got 0; correct"),
        (
            "glm4_moe",
            {"num_experts_per_tok": 4},
            "topk_group groups have num_experts_per_tok experts; got n_routed_experts=6, n_group=2, topk_group=1, "
            "num_experts_per_tok=4; load",
        ),
        ("dots1", {"n_shared_experts": None}, "n_shared_experts in .* a whole number, where .*; got None; correct"),
        ("glm4_moe", {"norm_topk_prob": None}, r"norm_topk_prob in config\.json must be true or false; got None"),
        ("olmoe", {"clip_qkv": 0.0}, "clip_qkv must be above zero; got 0.0; correct it, or leave it out"),
        ("gpt_oss", {"swiglu_limit": 0.0}, r"swiglu_limit in config\.json must be above zero; got 0\.0; correct"),
        ("olmo", {"clip_qkv": -1.0}, "clip_qkv must be above zero; got -1.0; correct it, or leave it out"),
        (
            "phi3",
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_type of a phi3 must be default or longrope; got 'linear'; load",
        ),
        (
            "exaone4",
            {"layer_types": None, "sliding_window_pattern": "LLLG"},
            "sliding_window_pattern must be a whole number above zero, where layer_types is left out; got 'LLLG'",
        ),
        ("umt5_encoder", {"is_decoder": True}, "umt5 is supported with is_decoder=False only; got True"),
        ("gemma", {"use_bidirectional_attention": True}, "gemma is supported with use_bidirectional_attention=False"),
        (
            "gemma2",
            {"attn_logit_softcapping": 0.0},
            r"attn_logit_softcapping in config\.json must be above zero; got 0",
        ),
        (
            "gemma2",
            {"final_logit_softcapping": -1},
            r"final_logit_softcapping .* must be above zero; got -1; correct",
        ),
        (
            "gemma3_text",
            {"query_pre_attn_scalar": 0},
            r"query_pre_attn_scalar in config\.json must be above zero; got 0",
        ),
        (
            "granite",
            {"residual_multiplier": -0.5},
            r"residual_multiplier in config\.json must be above zero; got -0\.5",
        ),
        ("granite", {"logits_scaling": 0.0}, r"logits_scaling in config\.json must be above zero; got 0\.0"),
        ("mistral", {"sliding_window": 0}, r"sliding_window in config\.json must be above 1, or null: .*; got 0"),
        ("ministral", {"sliding_window": 1}, r"sliding_window .* 1, the cache of transformers keeps all .*; got 1"),
    ],
)
def test_a_number_that_does_not_fit_is_refused_by_its_name(family, config, match):
    with pytest.raises(ValueError, match=match):
        family_of(family).read_config(FIELDS[family][0] | config, ())


@pytest.mark.parametrize(("family", "key"), [("gpt2", "layer_norm_epsilon"), ("qwen3", "rms_norm_eps")])
def test_an_epsilon_of_zero_is_one(family, key, made):
    folder = made(family, "ForCausalLM", **{key: 0.0})
    assert load(folder).shape.norm_eps == 0
    agrees(folder)


def test_a_part_of_each_head_is_refused_where_transformers_rotates_whole_ones():
    scaled = {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5}
    with pytest.raises(
        ValueError, match=r"of this family rotates whole heads, .*; got partial_rotary_factor=0\.5 of 8"
    ):
        family_of("llama").read_config(FIELDS["llama"][0] | scaled, ())


@pytest.mark.parametrize(
    ("family", "config", "scaled", "plain"),
    [
        ("gemma3_text", {"head_dim": 8}, "rope:theta=1000000.0", "rope:theta=10000.0"),
        (
            "olmo3",
            {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3},
            *("rope:theta=500000.0", "rope:theta=500000.0"),
        ),
    ],
)
def test_a_part_of_each_head_counts_beside_the_scaled_rope_of_a_layer_type(family, config, scaled, plain, made):
    # of the default rotation of the other layers, it has no effect
    told = {"partial_rotary_factor": 0.9, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    folder = made(family, "ForCausalLM", {"rope_parameters": None, **told}, **config)
    schemes = str(load(folder).shape.scheme).split(",rope")
    assert schemes[0] == plain
    assert f"rope{schemes[1]}" == f"{scaled},rotary_dim=7,spectrum=linear,spectrum.factor=2.0"
    agrees(folder)


@pytest.mark.parametrize(
    ("family", "config", "start", "ends", "padding", "fill"),
    [
        ("t5", {"eos_token_id": [1]}, 0, (1,), 0, 0),
        ("t5", {"eos_token_id": [1, 2, 19]}, 0, (1, 2), 0, 0),
        ("t5", {"eos_token_id": None, "pad_token_id": None}, 0, (), None, 0),
        ("t5", {"pad_token_id": 19, "eos_token_id": 3}, 0, (3,), None, 3),
        ("t5", {"decoder_start_token_id": None, "bos_token_id": 5}, 5, (1,), 0, 0),
        ("t5", {"decoder_start_token_id": None}, None, (1,), 0, 0),
        ("marian", {"decoder_start_token_id": 19}, None, (0,), 18, 18),
        ("marian", {"pad_token_id": None, "eos_token_id": [2, 4]}, 18, (2, 4), None, 2),
        ("marian", {"pad_token_id": -1, "bad_words_ids": [[18], [40]]}, 18, (0,), None, 0),
    ],
)
def test_special_tokens_may_be_several_or_none(family, config, start, ends, padding, fill, made, tmp_path):
    folder = made(family, "ForSeq2SeqLM", config)
    # it has those of the model that was made, and would take precedence
    (folder / "generation_config.json").unlink()
    model, shape = load(folder), load(folder).shape
    assert (shape.start, shape.end_tokens, shape.padding, shape.fill_token) == (start, ends, padding, fill)
    agrees(folder)
    save(model, tmp_path / "again", family)
    again = load(tmp_path / "again").shape
    assert (again.start, again.end_tokens, again.padding) == (start, ends, padding)


@pytest.mark.parametrize(("width", "rotated"), [(44, 30), (22, 15), (8, 3), (64, 16)])
def test_any_number_of_rotated_channels_is_written_and_read(width, rotated):
    config = spec_to_rope_parameters(f"rope:rotary_dim={rotated}", width, partial=True)
    assert int(width * config["partial_rotary_factor"]) == rotated
    assert f"rotary_dim={rotated}" in rope_spec(config, width, 64, partial=True)


GATED = {"feedforward": "swiglu"}
GEMMA2 = GATED | {"norm_position": "peri", "zero_centred_norm": True, "tie_embeddings": True}
GEMMA2 |= {"embedding_scale": 4.0, "round_embedding_scale": True}


@pytest.mark.parametrize(
    ("family", "kind", "fields", "match"),
    [
        (
            "phi3",
            Decoder,
            GATED | {"scheme": "rope:spectrum=linear,spectrum.factor=2"},
            "a phi3 requires the scheme rope, with no spectrum but longrope; got rope:spectrum=linear",
        ),
        (
            "smollm3",
            Decoder,
            GATED | {"scheme": "rope:theta=10.0,rope:theta=20.0"},
            "a smollm3 requires one scheme rope, .* and none in the others; got rope:theta=10.0,rope:theta=20.0",
        ),
        ("opt", Decoder, {}, "an opt requires scheme learned, .*; got rope, softmax, rms, pre; use save_pretrained"),
        (
            "gpt_neo",
            Decoder,
            {"scheme": "learned"},
            "a gpt_neo requires .*variant.scale=1.0,.*; got learned, softmax",
        ),
        (
            "phi",
            Decoder,
            {},
            "a phi requires norm_position shared, and the mixer softmax:.*; got pre, softmax, 8; use",
        ),
        (
            "phi",
            Decoder,
            {"norm_position": "shared", "head_width": 4, "mixer": PHI_NORMS, "norm_eps": 1e-5},
            "with a head_width of width / heads.; got shared, softmax:.*, 4; use save_pretrained instead",
        ),
        (
            "stablelm",
            Decoder,
            {},
            "a stablelm requires .* and a gated feedforward; got softmax, pre, gelu; use save_",
        ),
        (
            "falcon",
            Decoder,
            {"norm_position": "post"},
            "a falcon requires .*; got softmax, post and 2 for 2; use save",
        ),
        *(
            (
                "falcon",
                Decoder,
                {"scheme": scheme, "norm": "layer", "bias": ("norm",)},
                "a falcon with heads of 8 channels requires a scheme rope, or alibi:bfloat16_factor=0.3535.*; "
                f"got {scheme}; use it, or save_pretrained instead",
            )
            for scheme in (
                "alibi",
                "alibi:bfloat16_factor=0.5",
                "alibi:rule=even,bfloat16_factor=0.3535533905932738",
            )
        ),
        ("olmo", Decoder, GATED, "a olmo requires swiglu .*, nonparametric norms, .*; got swiglu, rms, pre, False"),
        (
            "olmo",
            Decoder,
            GATED | {"norm": "nonparametric", "mixer": "softmax:variant.clip_qkv=0.5,softmax"},
            "a olmo requires the mixer 'softmax'; got 'softmax:variant.clip_qkv=0.5,softmax'",
        ),
        ("glm", Decoder, GATED, "represent the model; .*'layout': 'half'.* would become .*'layout': 'interleaved'"),
        ("starcoder2", Decoder, {"mixer": "shared_qk"}, "a starcoder2 requires the mixer softmax:.*; got shared_qk"),
        (
            "starcoder2",
            Decoder,
            {"norm": "layer", "sliding_windows": (3, None)},
            "a starcoder2 must have the same window in every layer; got .*; use save_pretrained instead",
        ),
        ("cohere2", Decoder, GATED, "a cohere2 requires .* norm_position shared, and a gated feedforward; got .*pre"),
        (
            "olmo2",
            Decoder,
            GATED,
            "a olmo2 requires swiglu .*, norm_position res_post and zero_centred_norm=False; got swiglu, rms, pre",
        ),
        (
            "gptj",
            Decoder,
            {"norm": "layer", "norm_position": "shared", "scheme": "rope:rotary_dim=3"},
            "the scheme of a gptj rotates an even number of channels; got rope:rotary_dim=3; choose another",
        ),
        ("arcee", Decoder, GATED, "a arcee requires relu2 or another plain feedforward, rms .*; got swiglu"),
        (
            "nemotron",
            Decoder,
            {"norm": "layer", "feedforward": "relu2"},
            "a nemotron requires .*, layer norms, .* zero_centred_norm=True; got relu2, layer, pre, False; choose",
        ),
        (
            "persimmon",
            Decoder,
            {"norm": "layer"},
            "a persimmon requires the mixer softmax:variant.bias=true.*, and norm_position pre; got softmax, pre",
        ),
        (
            "helium",
            Decoder,
            GATED | {"head_width": 4},
            "the heads of a helium have the width of the model; got 2 heads of 4 channels; leave head_width out",
        ),
        (
            "ernie4_5",
            Decoder,
            GATED | {"bias": ("norm", "feedforward"), "scheme": "rope:layout=interleaved", "norm_eps": 1e-5},
            r"bias=\('feedforward',\) would become \(\); choose another family",
        ),
        ("gemma", Decoder, GATED, "a gemma requires .*, norm_position pre and zero_centred_norm=True; got .*, False"),
        (
            "llama",
            Decoder,
            GATED | {"zero_centred_norm": True},
            "a llama requires .*=False; got swiglu, rms, pre, True",
        ),
        (
            "llama",
            Decoder,
            GATED | {"residual_scale": 0.5},
            r"the config\.json .*; residual_scale=0\.5 would become 1\.0",
        ),
        (
            "gemma2",
            Decoder,
            GEMMA2 | {"mixer": "softmax:variant.scale=0.3"},
            r"the mixer of a gemma2 multiplies scores by 1 / sqrt\(.*\), a whole number; got .* scale=0\.3",
        ),
        ("gemma2", Decoder, GEMMA2 | {"embedding_scale": 2.0}, r"embedding_scale=2\.0 would become 4\.0"),
        ("granite", Decoder, GATED | {"logit_softcap": 2.0}, r"logit_softcap=2\.0 would become None"),
        (
            "granite",
            Decoder,
            GATED | {"mixer": "softmax:variant.softcap=2.0"},
            "a granite requires the mixer 'softmax'",
        ),
        (
            "olmo3",
            Decoder,
            GATED
            | {"norm_position": "res_post", "sliding_windows": (3, 4), "norm_eps": 1e-5}
            | {"mixer": "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_across=true"},
            r"a olmo3 must have one window size, .*; got windows of \[3, 4\]",
        ),
        (
            "t5_encoder",
            Encoder,
            {"head": "masked", "tie_embeddings": True, "scheme": "t5"},
            "a T5EncoderModel must be an encoder with head='none' and mixer .*; got EncoderShape, head='masked'",
        ),
        (
            "t5_encoder",
            Encoder,
            {
                "head": "none",
                "tie_embeddings": True,
                "scheme": "t5:per_layer=true",
                "mixer": "softmax:variant.scale=1.0",
            },
            "a t5 requires the scheme t5, with one table; got 't5:per_layer=true'",
        ),
        (
            "gemma3_text_encoder",
            Decoder,
            {},
            "a gemma3_text with use_bid.* must be an encoder .*; got Shape, head='next_token'; use save_",
        ),
        (
            "gemma3_text_encoder",
            Encoder,
            {"tie_embeddings": True},
            "a gemma3_text with use_bidirectional_attention must be .*; got EncoderShape, head='masked'; use save_",
        ),
    ],
)
def test_a_shape_that_a_family_does_not_have_is_not_saved(family, kind, fields, match, tmp_path):
    shape = Shape if kind is Decoder else EncoderShape
    model = kind(
        shape(**({"vocabulary": 19, "width": 16, "layers": 2, "heads": 2, "tie_embeddings": False} | fields))
    )
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, family)


@pytest.mark.parametrize("scaling", [3.0, 7.0, 16.0, 49.0, 0.1, 1e-3])
def test_the_logits_scaling_of_a_granite_is_written_as_it_was_read(scaling):
    family = family_of("granite")
    shape = family.read_config(FIELDS["granite"][0] | {"logits_scaling": scaling}, ())
    assert family.write_config(shape)["logits_scaling"] == scaling


def test_the_language_model_inside_another_is_named():
    config = {"model_type": "llava", "text_config": {"model_type": "llama"}}
    for part, remedy in (
        ("llama", "its text_config is a llama: save the language model alone in "),
        ("xyz", "load a checkpoint of one of these families"),
        (None, "load a checkpoint of one of"),
    ):
        inner = {} if part is None else {"text_config": {"model_type": part}}
        with pytest.raises(ValueError, match=f"must be one of .*; got 'llava'.*; {remedy}"):
            family_for({**config, "text_config": None, **inner})


@pytest.mark.parametrize("family", ["gemma", "gemma2", "gemma3_text"])
def test_a_gemma_in_bfloat16_has_the_bits_of_its_embeddings_and_norms(family, made, tmp_path):
    folder = made(family, "ForCausalLM", hidden_size=48)
    other = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model, ids = load(folder, dtype=torch.bfloat16), torch.arange(3, 13)[None]
    with torch.no_grad():
        x = other.model.embed_tokens(ids)
        assert torch.equal(model.embed_tokens(ids), x)
        # in bfloat16 the root of 48 is 6.9375
        assert not torch.equal(x, other.model.embed_tokens.weight[ids] * 48**0.5)
        for ours, theirs in (
            (model.norm, other.model.norm),
            (model.blocks[0].mixer_norm, other.model.layers[0].input_layernorm),
        ):
            assert torch.equal(ours.weight, theirs.weight)
            assert torch.equal(ours(x), theirs(x))
    save(model, tmp_path / "again", family)
    assert load(tmp_path / "again").norm.weight.dtype == torch.bfloat16
    assert torch.equal(load(tmp_path / "again").norm.weight, other.model.norm.weight)
