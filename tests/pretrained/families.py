"""Tiny models of each published family, with random weights."""

import pytest
import torch
import transformers

from ordinate.pretrained.weights import family_of

SIZES = {"vocab_size": 29, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 9, "sliding_window": 4}
GEMMA4 = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 4}
GEMMA4 |= {"head_dim": 12, "global_head_dim": 16, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 29}
GEMMA4 |= {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}
GRANITE = {
    "embedding_multiplier": 12,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.1,
    "logits_scaling": 3.0,
}
EARLY = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
LONG = {"original_max_position_embeddings": 16, "rope_theta": 1e4}
FACTORS = [1.0, 1.5, 2.0, 4.0]
MSCALES = {"short_mscale": 1.2, "long_mscale": 1.2}
OPT = {
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
NEO = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64, "window_size": 4}
NEO["attention_types"] = [[["global", "local"], 1]]
STABLE = {"hidden_size": 64, "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True}
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
QWEN_EXPERTS = {"head_dim": 16, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED_EXPERT = QWEN_EXPERTS | {"shared_expert_intermediate_size": 40}
GPT_OSS = {"head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 1.0, "sliding_window": 4}
DEEPSEEK = {"n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1}
DEEPSEEK |= {"first_k_dense_replace": 1, "routed_scaling_factor": 1.5}
GROUPED = {"n_routed_experts": 6, "n_group": 2, "topk_group": 1, "n_shared_experts": 2, "norm_topk_prob": False}
GROUPED |= {"first_k_dense_replace": 0}
SOLAR = {name: size for name, size in (LLAMA | DEEPSEEK).items() if name != "intermediate_size"} | {"head_dim": 16}
EXAONE_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "sliding_window": 4}
EXAONE_EXPERTS |= {"sliding_window_pattern": 2}
HY_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "router_scaling_factor": 1.5}
FULL_YARN = {"rope_type": "yarn", "factor": 4.0, **LONG}
DEFAULT = {"rope_type": "default"}
TRINITY = {name: size for name, size in EXAONE_EXPERTS.items() if name != "sliding_window_pattern"}
TRINITY |= {"head_dim": 8, "global_attn_every_n_layers": 2, "num_dense_layers": 1, "route_scale": 1.5}
SWA = {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]}
LATENT = LLAMA | DEEPSEEK | {"num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "kv_lora_rank": 12}
LATENT |= {"q_lora_rank": 10, "qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "v_head_dim": 10}
LATENT_YARN = {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0, **LONG}
SHORT = {"original_max_position_embeddings": 4, "rope_theta": 1e4}
LATENT_SIZES = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
DENSE_LATENT = LLAMA | {name: LATENT[name] for name in ("num_key_value_heads", *LATENT_SIZES)}
ERNIE_EXPERTS = {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 1}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 6}
MAMBA2 = MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2}
JAMBA = LLAMA | {"num_hidden_layers": 3, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4}
JAMBA |= {"mamba_d_state": 6}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 9}
DELTA |= {"linear_conv_kernel_dim": 3}
MIXED = ["full_attention", "linear_attention", "linear_attention"]
FALCON_H1 = {"mamba_d_ssm": 48, "mlp_multipliers": [0.7, 1.3], "ssm_multipliers": [0.5, 0.7, 1.2, 0.9, 1.1]}
FALCON_H1 |= {"ssm_in_multiplier": 2.0, "ssm_out_multiplier": 0.8, "key_multiplier": 0.6, "lm_head_multiplier": 0.5}
FALCON_H1 |= {"attention_in_multiplier": 0.5, "attention_out_multiplier": 1.4, "embedding_multiplier": 2.0}
MAMBA_HYBRID = LLAMA | {"num_hidden_layers": 3, "mamba_n_heads": 8, "mamba_d_state": 6, "mamba_n_groups": 2}
GRANITE_HYBRID = MAMBA_HYBRID | GRANITE | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
NEMOTRON = {name: size for name, size in LLAMA.items() if name != "num_hidden_layers"}
NEMOTRON |= {"head_dim": 8, "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 6, "n_groups": 2}
NEMOTRON |= {"n_routed_experts": 6, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40}
LFM2 = LLAMA | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8}
LFM3 = LLAMA | {"num_hidden_layers": 4, "head_dim": 12, "sliding_window": 4}
LFM3 |= {"layer_types": ["conv", "sliding_attention", "conv", "full_attention"]}
LFM2_EXPERTS = LFM2 | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LFM2_EXPERTS |= {"num_dense_layers": 1, "routed_scaling_factor": 1.5}
KIMI = {name: LATENT[name] for name in (*LATENT_SIZES, "hidden_size", "intermediate_size", "max_position_embeddings")}
KIMI |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": None}
KIMI |= {"linear_num_heads": 3, "linear_head_dim": 6, "linear_conv_kernel_dim": 3, "routed_scaling_factor": 1.5}
KIMI |= {"num_experts": 5, "num_experts_per_token": 2, "moe_intermediate_size": 24}
KIMI |= {"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}
DBRX = {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}
DBRX |= {"ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 6, "moe_top_k": 2}}
XGLM = {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "max_position_embeddings": 64}
BERT = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
# transformers has no such model without these tokens
MODERN_DECODER = BERT | {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 2}
MODERN_DECODER |= {"num_hidden_layers": 4, "local_attention": 8}
MIMO = {"head_dim": 8, "v_head_dim": 6, "sliding_window": 4, "num_key_value_heads": 1, "n_routed_experts": 5}
MIMO |= {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
COMMAND = {"sliding_window": 4, "sliding_window_pattern": 2, "logit_scale": 0.25, "head_dim": 8, "num_experts": 5}
LAGUNA = QWEN_EXPERTS | {"head_dim": 8, "shared_expert_intermediate_size": 40, "sliding_window": 4}
LAGUNA |= {"layer_types": ["full_attention", "sliding_attention"]}
LLAMA4 = {"head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size_mlp": 40}
LLAMA4 |= {"attention_chunk_size": 4, "no_rope_layers": [1, 0]}
# ends of the names of what is added to the scores of experts for the choice
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")
# the name of a case: its model_type, and what makes it another one of the family
CASES = {
    "llama": LLAMA,
    "llama, linear": LLAMA | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
    "llama, dynamic": LLAMA | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
    "llama, yarn": LLAMA | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, **LONG}},
    "llama, llama3": LLAMA
    | {
        "head_dim": 16,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **LONG,
            "rope_theta": 5e5,
        },
    },
    "llama, longrope": LLAMA
    | {"rope_parameters": {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS, **LONG}},
    "seed_oss": LLAMA | {"head_dim": 16},
    "seed_oss, biases": LLAMA
    | {"head_dim": 8, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True},
    "arcee": LLAMA,
    "arcee, biases": LLAMA | {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_new"},
    "nemotron": LLAMA,
    "nemotron, biases": LLAMA | {"attention_bias": True, "mlp_bias": True, "partial_rotary_factor": 1.0},
    "persimmon": {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"},
    "persimmon, plain": {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    | {"qk_layernorm": False},
    "ernie4_5": LLAMA | {"head_dim": 16},
    "ernie4_5, biases": LLAMA | {"head_dim": 8, "use_bias": True, "tie_word_embeddings": False},
    "helium": LLAMA | {"head_dim": 8},
    "mistral": LLAMA | {"sliding_window": 4},
    "mistral, whole": LLAMA | {"sliding_window": None},
    "ministral": LLAMA
    | {"sliding_window": 4, "head_dim": 16, "layer_types": ["full_attention", "sliding_attention"]},
    "qwen2": LLAMA,
    "qwen2, windows": LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3": LLAMA | {"head_dim": 16},
    "smollm3": LLAMA | {"no_rope_layers": [1, 0]},
    "smollm3, windows": LLAMA | {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 4},
    "phi3": LLAMA | {"sliding_window": 4, "partial_rotary_factor": 0.5},
    "phi3, longrope": LLAMA
    | {"rope_parameters": {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS}}
    | {"original_max_position_embeddings": 16},
    "olmo2": LLAMA,
    "olmo3": LLAMA
    | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "exaone": LLAMA,
    "exaone, biases": LLAMA | {"head_dim": 16, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "cwm": LLAMA | {"head_dim": 16, "sliding_window": 4, "max_position_embeddings": 131_072, "bos_token_id": 1},
    "cwm, types": LLAMA
    | SWA
    | {"head_dim": 8, "mlp_bias": True, "rope_parameters": {"rope_theta": 1e4}, "bos_token_id": 1},
    "iquestcoder": LLAMA | {"head_dim": 8},
    "iquestcoder, biases": LLAMA | {"head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "hyperclovax": LLAMA | GRANITE,
    "hyperclovax, plain": LLAMA | {"use_post_norm": False, "attention_bias": True, "mlp_bias": True},
    "exaone4": LLAMA | {"sliding_window": 4, "sliding_window_pattern": 2},
    "exaone4, whole": LLAMA | {"sliding_window": None, "layer_types": ["full_attention"] * 2},
    "apertus": LLAMA,
    "apertus, prelu": LLAMA | {"hidden_act": "prelu", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "hunyuan_v1_dense": LLAMA | {"head_dim": 16},
    "hunyuan_v1_dense, alpha": LLAMA
    | {"head_dim": 16, "rope_parameters": {"rope_type": "dynamic", "alpha": 9.0, "factor": 1.0, "rope_theta": 1e4}},
    "ministral3": LLAMA
    | {"head_dim": 16}
    | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.5, **SHORT}},
    "cohere": LLAMA | {"logit_scale": 0.25},
    "cohere, norms": LLAMA | {"logit_scale": 0.25, "use_qk_norm": True, "attention_bias": True},
    "phimoe": LLAMA | {"num_local_experts": 5, "router_jitter_noise": 0.2, "sliding_window": 4},
    "phimoe, longrope": LLAMA
    | {"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True}
    | {
        "rope_parameters": {
            "rope_type": "longrope",
            "short_factor": FACTORS,
            "long_factor": FACTORS,
            **LONG,
            **MSCALES,
        }
    },
    "minimax_m2": LLAMA | {"head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "rotary_dim": 8},
    "ernie4_5_moe": LLAMA | ERNIE_EXPERTS,
    "ernie4_5_moe, all": LLAMA | ERNIE_EXPERTS | {"moe_layer_start_index": 0, "moe_num_shared_experts": 0},
    "cohere2_moe": LLAMA | COMMAND | {"num_shared_experts": 2},
    "cohere2_moe, dense layers": LLAMA
    | COMMAND
    | {"first_k_dense_replace": 1, "prefix_dense_intermediate_size": 40, "expert_selection_fn": "sigmoid"}
    | {"rms_norm_eps": 1e-3, "attention_bias": True, "norm_topk_prob": False, "num_experts": 6},
    "cohere2": LLAMA | {"sliding_window": 4, "sliding_window_pattern": 2, "logit_scale": 0.25},
    "starcoder2": LLAMA,
    "olmo": LLAMA | {"clip_qkv": 0.5},
    "glm": LLAMA | {"head_dim": 8},
    "glm4": LLAMA | {"head_dim": 8},
    "opt": OPT,
    "opt, narrow": OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "opt, plain norms": OPT | {"layer_norm_elementwise_affine": False, "enable_bias": False},
    "gpt_neo": NEO,
    "gpt_neo, untied": NEO | {"attention_types": [[["local"], 2]], "tie_word_embeddings": False},
    "phi": LLAMA,
    "phi, norms": LLAMA | {"qk_layernorm": True},
    "stablelm": LLAMA | {"hidden_size": 64},
    "stablelm, norms": LLAMA | STABLE,
    "falcon": FALCON,
    "falcon, in turn": FALCON | {"parallel_attn": False, "multi_query": False, "bias": True},
    "falcon, grouped": FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
    # some slopes of 12 heads are no bfloat16
    "falcon, alibi": FALCON
    | {"hidden_size": 48, "num_attention_heads": 12, "alibi": True, "multi_query": False, "bias": True},
    "falcon, alibi and grouped": FALCON
    | {"hidden_size": 96, "num_attention_heads": 12}
    | {"alibi": True, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon, one norm": FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    "gemma": LLAMA | {"head_dim": 16},
    "gemma2": LLAMA | GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.0},
    "vaultgemma": LLAMA | GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.0},
    "gemma3_text": LLAMA
    | GEMMA
    | {"sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma4_text": LLAMA | GEMMA4,
    "gemma4_text, experts": LLAMA
    | GEMMA4
    | {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_double_wide_mlp": False}
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "attention_bias": True, "global_head_dim": 24}
    | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 3, "moe_intermediate_size": 16},
    "gemma4_unified_text": LLAMA
    | {name: GEMMA4[name] for name in GEMMA4 if "_input" not in name}
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "final_logit_softcapping": 2.0},
    "nanochat": LLAMA | {"final_logit_softcapping": 2.0},
    "nanochat, biases": LLAMA | {"head_dim": 16, "attention_bias": True, "final_logit_softcapping": None},
    "jais2": LLAMA,
    "jais2, plain": LLAMA | {"attention_bias": False, "mlp_bias": False, "hidden_act": "gelu_new"},
    "internlm3": LLAMA | {"head_dim": 16},
    "internlm3, biases": LLAMA | {"head_dim": 8, "attention_bias": True, "mlp_bias": True},
    "solar_open": SOLAR,
    "solar_open, groups": SOLAR | GROUPED | {"attention_bias": True},
    "exaone_moe": LLAMA | EXAONE_EXPERTS,
    "exaone_moe, groups": LLAMA
    | EXAONE_EXPERTS
    | {"num_experts": 6, "n_group": 2, "mlp_layer_types": ["sparse", "dense"], "num_shared_experts": 2},
    "afmoe": LLAMA | TRINITY,
    "afmoe, biases": LLAMA
    | TRINITY
    | {"num_dense_layers": 0, "mup_enabled": True, "attention_bias": True, "num_shared_experts": 1, "head_dim": 16},
    "mimo_v2_flash": LLAMA | MIMO | {"layer_types": ["full_attention", "sliding_attention"]},
    "mimo_v2_flash, windows": LLAMA
    | MIMO
    | {"layer_types": ["sliding_attention"] * 2, "mlp_layer_types": ["sparse", "dense"], "v_head_dim": 8}
    | {"attention_value_scale": None, "attention_bias": True, "n_routed_experts": 6, "n_group": 2},
    "laguna": LLAMA | LAGUNA | {"num_attention_heads_per_layer": [4, 6]},
    "laguna, gates of channels": LLAMA
    | LAGUNA
    | {"gating": "per-element", "attention_bias": True, "mlp_layer_types": ["sparse", "dense"], "num_experts": 6}
    | {"moe_routed_scaling_factor": 1.5, "moe_router_logit_softcapping": 0.5, "head_dim": 16},
    # transformers counts padding in the temperature of layers without RoPE, where it is not 1
    "llama4_text": LLAMA | LLAMA4,
    "llama4_text, dense layers": LLAMA
    | LLAMA4
    | {"moe_layers": [1], "use_qk_norm": False, "attention_bias": True, "attn_temperature_tuning": False}
    | {"layer_types": ["full_attention", "chunked_attention"], "attention_chunk_size": 3},
    "granite_swa": LLAMA | GRANITE | SWA,
    "granite_swa, thetas": LLAMA | GRANITE | SWA | {"layer_rope_theta": [0, 5e4], "attention_bias": True},
    "granitemoe_swa": LLAMA | GRANITE | SWA | {"num_local_experts": 5, "shared_intermediate_size": 40},
    "granite": LLAMA | GRANITE,
    "granitemoe": LLAMA | GRANITE | {"num_local_experts": 5},
    "granitemoeshared": LLAMA | GRANITE | {"num_local_experts": 5, "shared_intermediate_size": 40},
    "granitemoehybrid": GRANITE_HYBRID | {"num_local_experts": 0, "shared_intermediate_size": 40},
    "granitemoehybrid, experts": GRANITE_HYBRID
    | {"num_local_experts": 6, "shared_intermediate_size": 40, "position_embedding_type": "rope"}
    | {"attention_bias": True, "mamba_conv_bias": False, "mamba_d_conv": 3},
    "bamba": MAMBA_HYBRID | {"attn_layer_indices": [1]},
    "bamba, biases": MAMBA_HYBRID
    | {"attn_layer_indices": [0, 2], "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_new"},
    "falcon_h1": MAMBA_HYBRID | FALCON_H1,
    "falcon_h1, biases": MAMBA_HYBRID
    | FALCON_H1
    | {"attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0}
    | {"attention_bias": True, "mlp_bias": True}
    | {"mamba_rms_norm": True, "mamba_norm_before_gate": False, "hidden_act": "gelu_new"},
    "jamba": JAMBA,
    "jamba, no experts": JAMBA
    | {
        "num_experts": 1,
        "hidden_act": "gelu_new",
        "mamba_expand": 1,
        "mamba_conv_bias": False,
        "attn_layer_period": 2,
    },
    "lfm2": LFM2,
    # biases of its convolutions change padded rows in transformers
    "lfm2, untied": LFM2 | {"conv_L_cache": 4, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False},
    "lfm3": LFM3,
    "lfm3, plain": LFM3 | {"use_sandwich_norm": False, "use_attention_gate": False, "attention_bias": True},
    "lfm2_moe": LFM2_EXPERTS,
    "lfm2_moe, plain weights": LFM2_EXPERTS
    | {"use_expert_bias": False, "norm_topk_prob": False, "num_dense_layers": 0},
    "kimi_linear": KIMI,
    "kimi_linear, groups": KIMI
    | {"q_lora_rank": 10, "num_experts": 6, "num_expert_group": 2, "topk_group": 1, "num_shared_experts": 2}
    | {"moe_renormalize": False, "hidden_act": "gelu_new", "attention_bias": True}
    | {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
    "nemotron_h": NEMOTRON | {"layers_block_type": ["linear_attention", "mlp", "mamba", "full_attention", "mlp"]},
    "nemotron_h, experts": NEMOTRON
    | {"hybrid_override_pattern": "MEM*E*-", "n_group": 2, "routed_scaling_factor": 1.5, "mamba_head_dim": 5}
    | {"moe_latent_size": 16},
    "mixtral": LLAMA | {"num_local_experts": 5},
    "mixtral, windows": LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 4},
    "olmoe": LLAMA | {"num_experts": 5, "num_experts_per_tok": 2},
    "olmoe, clipped": LLAMA | {"num_experts": 5, "num_experts_per_tok": 2, "clip_qkv": 0.5},
    "flex_olmo": LLAMA | {"num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True},
    "qwen3_moe": LLAMA | QWEN_EXPERTS,
    "qwen3_moe, dense layers": LLAMA | QWEN_EXPERTS | {"decoder_sparse_step": 2, "norm_topk_prob": True},
    "qwen2_moe": LLAMA | SHARED_EXPERT,
    "qwen2_moe, windows": LLAMA
    | SHARED_EXPERT
    | {"decoder_sparse_step": 2, "norm_topk_prob": True, "qkv_bias": False}
    | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3_next": LLAMA | SHARED_EXPERT | DELTA | {"num_hidden_layers": 4},
    "qwen3_next, dense layers": LLAMA
    | SHARED_EXPERT
    | DELTA
    | {"num_hidden_layers": 3, "layer_types": MIXED, "mlp_only_layers": [1], "attention_bias": True}
    | {"linear_value_head_dim": 12, "linear_num_key_heads": 4, "hidden_act": "gelu_new"},
    "qwen3_5_text": LLAMA | DELTA | {"head_dim": 16, "num_hidden_layers": 4},
    "qwen3_5_moe_text": LLAMA | SHARED_EXPERT | DELTA | {"num_hidden_layers": 3, "layer_types": MIXED},
    "olmo_hybrid": LLAMA | {"num_hidden_layers": 4, "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "olmo_hybrid, rope": LLAMA | DELTA | {"num_hidden_layers": 3, "layer_types": MIXED, "attention_bias": True},
    "glm4_moe": LLAMA | DEEPSEEK,
    "glm4_moe, groups": LLAMA | DEEPSEEK | GROUPED | {"use_qk_norm": True, "attention_bias": True, "head_dim": 16},
    "sarvam_moe": LLAMA | DEEPSEEK | {"head_dim": 16},
    "sarvam_moe, groups": LLAMA | DEEPSEEK | GROUPED | {"head_dim": 8, "use_qk_norm": False, "attention_bias": True},
    "hy_v3": LLAMA | HY_EXPERTS | {"head_dim": 16},
    "hy_v3, mixed": LLAMA
    | HY_EXPERTS
    | {"head_dim": 8, "attention_bias": True, "mlp_layer_types": ["sparse", "dense"], "num_shared_experts": 2},
    "mellum": LLAMA | QWEN_EXPERTS | {"sliding_window": 4},
    "mellum, types": LLAMA
    | QWEN_EXPERTS
    | SWA
    | {"attention_bias": True, "mlp_layer_types": ["sparse", "dense"], "norm_topk_prob": False}
    | {"rope_parameters": {"full_attention": FULL_YARN, "sliding_attention": {"rope_theta": 5e3, **DEFAULT}}},
    "sarvam_mla": LATENT,
    "sarvam_mla, groups": LATENT
    | GROUPED
    | {"q_lora_rank": None, "attention_bias": True, "rope_interleave": False, "head_dim": 40}
    | {"rope_scaling": {"type": "deepseek_yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0, **LONG}},
    "deepseek_v3": LATENT,
    "deepseek_v3, groups": LATENT
    | GROUPED
    | {"q_lora_rank": None, "attention_bias": True, "rope_interleave": False, "rope_parameters": LATENT_YARN},
    # with 5 experts a text has two of nearly equal scores, of which 16 bits choose the other
    "deepseek_v2": LATENT | {"n_routed_experts": 6},
    "deepseek_v2, groups": LATENT
    | GROUPED
    | {"n_group": 3, "topk_group": 2, "topk_method": "group_limited_greedy", "rope_parameters": LATENT_YARN},
    "glm4_moe_lite": {name: size for name, size in LATENT.items() if name != "first_k_dense_replace"},
    "glm4_moe_lite, mixed": {name: size for name, size in LATENT.items() if name != "first_k_dense_replace"}
    | {"mlp_layer_types": ["sparse", "dense"], "q_lora_rank": None},
    "minicpm3": DENSE_LATENT | {"dim_model_base": 12},
    "minicpm3, plain": DENSE_LATENT
    | {"q_lora_rank": None, "attention_bias": True, "mlp_bias": True, "rope_parameters": LATENT_YARN}
    | {"scale_emb": 1, "scale_depth": None, "dim_model_base": None, "tie_word_embeddings": False},
    "youtu": DENSE_LATENT,
    "youtu, biases": DENSE_LATENT
    | {"q_lora_rank": None, "attention_bias": True, "rope_interleave": False, "rope_parameters": LATENT_YARN},
    "dots1": LLAMA | DEEPSEEK | {"norm_topk_prob": True},
    "dots1, groups": LLAMA | DEEPSEEK | GROUPED | {"sliding_window": 4, "max_window_layers": 1},
    "gpt_oss": LLAMA | GPT_OSS,
    "gpt_oss, rope": LLAMA
    | GPT_OSS
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "attention_bias": False, "swiglu_alpha": 1.0},
    "gpt2": EARLY,
    "gpt2, untied": EARLY | {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": 24},
    "gpt_neox": {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"},
    "gpt_neox, in turn": {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    | {"use_parallel_residual": False, "hidden_act": "gelu_new"},
    "gptj": EARLY | {"rotary_dim": 4},
    "gpt_bigcode": EARLY,
    "gpt_bigcode, heads": EARLY | {"multi_query": False, "scale_attn_weights": False, "tie_word_embeddings": False},
    "codegen": EARLY | {"rotary_dim": 4},
    "hunyuan_v1_moe": LLAMA | {"head_dim": 16, "num_experts": 6, "moe_topk": 2},
    "dbrx": DBRX | {"attn_config": {"rope_theta": 1e4, "clip_qkv": 0.5, "kv_n_heads": 2}},
    "dbrx, one head": DBRX | {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "modernbert_decoder": MODERN_DECODER,
    "modernbert_decoder, biases": MODERN_DECODER
    | {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False}
    | {"layer_types": ["sliding_attention", "full_attention"] * 2, "classifier_activation": "relu"},
    "biogpt": BERT,
    "biogpt, untied": BERT | {"tie_word_embeddings": False, "scale_embedding": False, "hidden_act": "gelu_new"},
    "xglm": XGLM,
    "xglm, untied": XGLM | {"tie_word_embeddings": False, "scale_embedding": False, "activation_function": "relu"},
    "openai_gpt": EARLY,
    "openai_gpt, untied": EARLY | {"tie_word_embeddings": False, "afn": "relu"},
    "opt, no last norm": OPT | {"_remove_final_layer_norm": True},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mamba": MAMBA,
    "mamba, untied": MAMBA
    | {"use_conv_bias": False, "conv_kernel": 3, "intermediate_size": 40, "time_step_rank": 3, "hidden_act": "gelu"}
    | {"tie_word_embeddings": False},
    "falcon_mamba": MAMBA,
    "falcon_mamba, untied": MAMBA | {"mixer_rms_eps": 1e-2, "expand": 1, "tie_word_embeddings": False},
    "mamba2": MAMBA2,
    "mamba2, tied": MAMBA2 | {"use_conv_bias": False, "n_groups": 1, "tie_word_embeddings": True},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
}
DISTIL = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64}
ESM = BERT | {"pad_token_id": 1, "mask_token_id": 28}
MODERN = BERT | {"num_hidden_layers": 4, "local_attention": 4, "cls_token_id": None, "sep_token_id": None}
DEBERTA = BERT | {
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 4,
    "max_position_embeddings": 8,
    "pos_att_type": ["p2c", "c2p"],
}
# encoders: the class of transformers behind the comma
ENCODERS = {
    "bert, ForMaskedLM": BERT,
    "bert, Model": BERT | {"hidden_act": "gelu_new", "type_vocab_size": 3},
    "roberta, ForMaskedLM": BERT | {"pad_token_id": 1},
    "roberta, Model": BERT | {"pad_token_id": 1},
    "xlm_roberta, ForMaskedLM": BERT | {"pad_token_id": 1},
    "xlm_roberta, Model": BERT | {"pad_token_id": 1},
    "camembert, ForMaskedLM": BERT | {"pad_token_id": 1},
    "camembert, Model": BERT | {"pad_token_id": 1},
    "roformer, ForMaskedLM": BERT | {"embedding_size": 24},
    "roformer, Model": BERT | {"rotary_value": True},
    "distilbert, ForMaskedLM": DISTIL,
    "distilbert, Model": DISTIL | {"activation": "relu"},
    "electra, ForMaskedLM": BERT | {"embedding_size": 24},
    "electra, Model": BERT | {"embedding_size": 32},
    "esm, ForMaskedLM": ESM | {"position_embedding_type": "rotary", "token_dropout": True},
    "esm, Model": ESM | {"emb_layer_norm_before": True},
    "mpnet, ForMaskedLM": BERT,
    "mpnet, Model": BERT | {"hidden_act": "relu"},
    "data2vec_text, ForMaskedLM": BERT | {"pad_token_id": 1},
    "data2vec_text, Model": BERT | {"pad_token_id": 1},
    "xlm_roberta_xl, ForMaskedLM": BERT | {"pad_token_id": 1, "type_vocab_size": 2},
    "xlm_roberta_xl, Model": BERT | {"pad_token_id": 1, "type_vocab_size": 3},
    "megatron_bert, ForMaskedLM": BERT,
    "megatron_bert, Model": BERT | {"hidden_act": "gelu_new", "type_vocab_size": 3},
    "ernie, ForMaskedLM": BERT,
    "ernie, Model": BERT | {"hidden_act": "relu", "type_vocab_size": 4},
    "roberta_prelayernorm, ForMaskedLM": BERT | {"pad_token_id": 1},
    "roberta_prelayernorm, Model": BERT | {"pad_token_id": 1},
    "nomic_bert, ForMaskedLM": BERT | {"pad_token_id": 0},
    "nomic_bert, Model": BERT | {"pad_token_id": 0, "head_dim": 6, "hidden_act": "gelu"},
    "albert, ForMaskedLM": BERT | {"embedding_size": 24, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "albert, Model": BERT | {"embedding_size": 24, "num_hidden_layers": 3, "inner_group_num": 2},
    "eurobert, ForMaskedLM": LLAMA | {"mlp_bias": True},
    "eurobert, Model": LLAMA | {"head_dim": 6, "attention_bias": True, "hidden_act": "gelu"},
    "modernbert, ForMaskedLM": MODERN,
    "modernbert, Model": MODERN
    | {
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 8e4}},
    },
    "deberta_v2, ForMaskedLM": DEBERTA,
    "deberta_v2, Model": DEBERTA | {"pos_att_type": ["p2c"], "norm_rel_ebd": "none", "type_vocab_size": 2},
}
# classifiers of texts and tokens, and heads for answers
TEXT_HEADS = {
    "llama, text heads": LLAMA | {"tie_word_embeddings": True},
    "seed_oss, text heads": LLAMA | {"head_dim": 8},
    "arcee, text heads": LLAMA,
    "nemotron, text heads": LLAMA,
    "persimmon, text heads": CASES["persimmon"],
    "helium, text heads": LLAMA | {"head_dim": 8},
    "apertus, text heads": LLAMA,
    "hunyuan_v1_dense, text heads": CASES["hunyuan_v1_dense"],
    "ministral3, text heads": CASES["ministral3"],
    "mistral, text heads": LLAMA | {"sliding_window": 4},
    "ministral, text heads": LLAMA
    | {"sliding_window": 4, "head_dim": 8, "layer_types": ["full_attention", "sliding_attention"]},
    "qwen2, text heads": LLAMA | {"token_classification_bias": False},
    "qwen3, text heads": LLAMA | {"head_dim": 16},
    "smollm3, text heads": LLAMA | {"no_rope_layers": [1, 0]},
    "phi3, text heads": LLAMA,
    "olmo2, text heads": LLAMA,
    "olmo3, text heads": LLAMA | {"sliding_window": 4},
    "exaone4, text heads": LLAMA | {"sliding_window": 4, "sliding_window_pattern": 2},
    "starcoder2, text heads": LLAMA,
    "olmo, text heads": LLAMA,
    "glm, text heads": LLAMA | {"head_dim": 8},
    "glm4, text heads": LLAMA | {"head_dim": 8, "token_classification_bias": False},
    "opt, text heads": OPT | {"word_embed_proj_dim": 16},
    "gpt_neo, text heads": NEO,
    "phi, text heads": LLAMA | {"tie_word_embeddings": True},
    "stablelm, text heads": LLAMA | STABLE,
    "falcon, text heads": FALCON,
    "gemma, text heads": CASES["gemma"],
    "gemma2, text heads": CASES["gemma2"],
    "gemma3_text, text heads": CASES["gemma3_text"],
    "mixtral, text heads": CASES["mixtral"],
    "phimoe, text heads": CASES["phimoe"],
    "qwen3_moe, text heads": CASES["qwen3_moe"],
    "qwen2_moe, text heads": CASES["qwen2_moe"],
    "qwen3_next, text heads": CASES["qwen3_next"],
    "qwen3_5_text, text heads": CASES["qwen3_5_text"],
    "deepseek_v3, text heads": CASES["deepseek_v3"],
    "deepseek_v2, text heads": CASES["deepseek_v2, groups"],
    "minicpm3, text heads": CASES["minicpm3"],
    "gpt_oss, text heads": CASES["gpt_oss"],
    "jamba, text heads": CASES["jamba"],
    "gpt2, text heads": EARLY,
    "gpt_bigcode, text heads": EARLY,
    "hunyuan_v1_moe, text heads": CASES["hunyuan_v1_moe"],
    "biogpt, text heads": BERT,
    "modernbert_decoder, text heads": MODERN_DECODER | {"classifier_bias": True},
    "openai_gpt, text heads": EARLY,
    "gpt_neox, text heads": CASES["gpt_neox"],
    "gptj, text heads": CASES["gptj"],
    "bloom, text heads": CASES["bloom"] | {"tie_word_embeddings": False},
    "mpt, text heads": CASES["mpt"],
    "bert, text heads": BERT,
    "roberta, text heads": BERT,
    "xlm_roberta, text heads": BERT,
    "camembert, text heads": BERT,
    "roformer, text heads": BERT,
    "distilbert, text heads": DISTIL,
    "electra, text heads": BERT | {"embedding_size": 24},
    "esm, text heads": ESM | {"position_embedding_type": "rotary", "token_dropout": True},
    "mpnet, text heads": BERT,
    "roberta_prelayernorm, text heads": BERT,
    "data2vec_text, text heads": BERT,
    "xlm_roberta_xl, text heads": BERT,
    "megatron_bert, text heads": BERT,
    "ernie, text heads": BERT,
    "nomic_bert, text heads": BERT | {"pad_token_id": 0},
    "albert, text heads": BERT | {"embedding_size": 24, "num_hidden_layers": 3},
    "eurobert, text heads": LLAMA,
    "eurobert, text heads of the mean": LLAMA | {"classifier_pooling": "mean"},
    "modernbert, text heads": MODERN | {"norm_bias": True, "classifier_bias": True},
    "modernbert, text heads of the mean": MODERN | {"classifier_pooling": "mean", "classifier_activation": "relu"},
    "deberta_v2, text heads": DEBERTA,
}
# the ends of the classes of transformers, and their classes; a reward model has one
ENDS = {
    "SequenceClassification": {0: "good"},
    "TokenClassification": {0: "eel", 1: "newt", 2: "frog"},
    "QuestionAnswering": {0: "first", 1: "last"},
}
VIT = BERT | {"image_size": 12, "patch_size": 4, "num_channels": 2}
DINO = {key: value for key, value in VIT.items() if key != "intermediate_size"} | {"mlp_ratio": 2}
# models for images
SEERS = {
    "vit, ForImageClassification": VIT | {"num_labels": 3},
    "vit, Model": VIT | {"qkv_bias": False, "hidden_act": "gelu_new", "image_size": [8, 8]},
    "dinov2, ForImageClassification": DINO | {"id2label": {0: "eel", 1: "newt"}, "layerscale_value": 0.5},
    "dinov2, Model": DINO | {"use_swiglu_ffn": True},
    "dinov2_with_registers, ForImageClassification": DINO | {"num_register_tokens": 3},
    "dinov2_with_registers, Model": DINO,
    "dinov3_vit, Model": VIT | {"num_register_tokens": 3, "layerscale_value": 0.5, "key_bias": True},
}
SEQUENCES = {"vocab_size": 29, "d_model": 32, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
T5 = SEQUENCES | {
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}
MARIAN = SEQUENCES | {
    "decoder_start_token_id": 28,
    "pad_token_id": 28,
    "encoder_layers": 3,
    "decoder_layers": 2,
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")},
    "max_position_embeddings": 64,
    "activation_function": "swish",
    "scale_embedding": True,
    "forced_eos_token_id": None,
}
BART = MARIAN | {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}
ENCODER_DECODERS = {
    "t5": T5,
    # of version 1.1: gates, and a head of its own
    "t5, untied": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 6},
    "mt5": T5 | {"feed_forward_proj": "gated-gelu", "d_kv": 6},
    "umt5": T5 | {"feed_forward_proj": "gated-gelu", "d_kv": 6},
    "marian": MARIAN,
    "bart": BART,
    "mbart": BART | {"scale_embedding": False},
    "pegasus": MARIAN | {"activation_function": "relu"},
    "plbart": BART,
    "blenderbot": BART | {"activation_function": "gelu_new"},
    "m2m_100": BART | {"scale_embedding": True},
    "m2m_100, odd width": BART
    | {"d_model": 33, "encoder_attention_heads": 3, "decoder_attention_heads": 1, "pad_token_id": 0},
    "marian, separate embeddings": MARIAN
    | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31, "activation_function": "relu"},
}


ENCODERS["gemma3_text_encoder, Model"] = CASES["gemma3_text"] | {"use_bidirectional_attention": True}
ENCODERS |= {f"{name}_encoder, TextEncoding": ENCODER_DECODERS[name] for name in ("t5", "mt5", "umt5")}


def no_worse(out, other, exact):
    """Ours in 16 bits is about as close to what 32 bits give as theirs is."""
    error, theirs = ((x.float() - exact).abs().max() for x in (out, other))
    assert error <= 2 * theirs + 0.02 * exact.abs().max()


def comparable(written, first, family, shape):
    """The tensors of ours and of transformers that are compared, by their names."""
    # transformers 5.24 writes an ESM with early names
    ends = ("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")
    for early, new in ends:
        first = {key.replace(early, new): x for key, x in first.items()}
    # what follows from the shape may have other names
    first = {key: x for key, x in first.items() if key in written or not family.ignores(key, shape)}
    computed = {family.stored_name(key, written) for key in family.computed(shape)}
    return {key: x for key, x in written.items() if key in first or key not in computed}, first


def with_head(name, end, **told):
    """The model of transformers with a text head, its numbers drawn so that every one of them shows."""
    kind = family_of(name.partition(", ")[0]).model_type
    config = transformers.CONFIG_MAPPING[kind](**(SIZES | TEXT_HEADS[name] | {"pad_token_id": 1} | told))
    config.id2label = ENDS[end]
    transformers.set_seed(0)
    model = getattr(transformers, f"AutoModelFor{end}").from_config(config).eval()
    for parameter in model.parameters():
        # sinusoids are fixed
        if parameter.requires_grad:
            parameter.data.add_(0.1 * parameter.data.clone().normal_())
    return model


def theirs(name, **told):
    """The model of transformers, its numbers drawn so that every one of them shows."""
    family, _, top = name.partition(", ")
    kind = family_of(family).model_type
    config = transformers.CONFIG_MAPPING[kind](**(SIZES | (CASES | ENCODERS | SEERS | ENCODER_DECODERS)[name] | told))
    autos = {
        "ForMaskedLM": transformers.AutoModelForMaskedLM,
        "ForImageClassification": transformers.AutoModelForImageClassification,
        "Model": transformers.AutoModel,
        "TextEncoding": transformers.AutoModelForTextEncoding,
        "": transformers.AutoModelForCausalLM,
    }
    auto = autos[top if name in ENCODERS | SEERS else ""]
    auto = transformers.AutoModelForSeq2SeqLM if name in ENCODER_DECODERS else auto
    transformers.set_seed(0)
    model = auto.from_config(config).eval()
    if name == "t5, untied":
        # its checkpoints have a head of their own, which transformers 5 takes from there only
        model.lm_head.weight = torch.nn.Parameter(torch.randn(29, 32))
    for buffer_name, buffer in (*model.named_buffers(), *model.named_parameters()):
        if buffer_name.endswith("final_logits_bias"):
            buffer.normal_()
        if buffer_name.endswith(CHOICE_BIASES):
            # far from each other: in 16 bits, experts of nearly equal scores would be others
            buffer.data.copy_(torch.randperm(len(buffer)).square() / 4)
    for parameter in model.parameters():
        # sinusoids are fixed
        if parameter.requires_grad:
            parameter.data.add_(0.1 * parameter.data.clone().normal_())
    return model


def representative(names):
    """Parameters for a test; what only repeats a mechanism of another case is left to the extended tier."""
    chosen = (
        "llama, dynamic",
        "gpt2",
        "gpt_neox",
        "mpt",
        "bert, Model",
        "modernbert, ForMaskedLM",
        "t5",
        "vit, Model",
    )
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.extended) for name in names]
