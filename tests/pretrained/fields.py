"""What is drawn for configurations of each family: fields of config.json and of shapes, with their values.

Each value of a field is as likely as the others.
"""

from ordinate.models.expert_options import ExpertOptions
from ordinate.models.next_token_rules import NextTokenRules

OUT = object()
"""A field that is left out."""
WORDS = 19
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
LLAMA = {"vocab_size": WORDS, **SMALL, "num_key_value_heads": 1, "max_position_embeddings": 32}
# some texts have the token 12, and one ends with it
TOKENS = {
    "pad_token_id": [OUT, None, 0, 2, 12],
    "bos_token_id": [OUT, None, 1],
    "eos_token_id": [OUT, None, 2, [1, 2]],
}
EPS = [OUT, 1e-6, 1e-3, 0.1]
TIED = [OUT, True, False]
LABELS = {
    "num_labels": [OUT, 1, 2, 3],
    "id2label": [OUT, OUT, {"0": "eel", "1": "newt", "2": "frog"}, {"0": "good"}],
}
# all that transformers has, without xielu, whose parameters have a type of their own
ACTIVATIONS = [
    *("gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh"),
    *("gelu_accurate", "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu"),
    *("relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh"),
]
WINDOWS = {
    "use_sliding_window": [OUT, True, False],
    "sliding_window": [OUT, None, 3],
    "max_window_layers": [OUT, 0, 1, 2],
    "layer_types": [OUT, None, ["full_attention", "sliding_attention"], ["sliding_attention"] * 2],
}
# every so many layers have no window
PATTERN = {
    "sliding_window": [OUT, None, 3, 5],
    "sliding_window_pattern": [OUT, None, 1, 2, 3, "LLLG"],
    "layer_types": WINDOWS["layer_types"],
}
# what does not change the logits of a model in eval mode
INERT = {
    "initializer_range": [0.02, 0.5],
    "use_cache": [True, False],
    "torch_dtype": ["float32"],
    "chunk_size_feed_forward": [0, 2],
    "output_hidden_states": [False],
    "return_dict": [True],
    "transformers_version": ["4.20.0"],
    "_name_or_path": ["someone/model"],
    "unheard_of": [1, None, "x"],
    "problem_type": [None],
}
DROPOUT = [0.0, 0.1]
LONG = {"original_max_position_embeddings": 16, "factor": 2.0}


def ropes(pairs):
    """Values of `rope_parameters` or `rope_scaling` for this number of rotated pairs."""
    factors = {"short_factor": [1.0 + 0.5 * m for m in range(pairs)], "long_factor": [2.0 + m for m in range(pairs)]}
    return [
        None,
        {"rope_type": "default", "rope_theta": 100.0},
        {"rope_theta": 500.0},
        {"type": "linear", "factor": 2.0},
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
        {"rope_type": "linear", "factor": 2.0, "beta_fast": 8.0, "original_max_position_embeddings": 4},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4},
        {"rope_type": "yarn", "rope_theta": 100.0, **LONG},
        {"rope_type": "yarn", "factor": 2.0, "beta_fast": 8.0, "truncate": False},
        {"rope_type": "yarn", "attention_factor": 0.5, "mscale": 0.7, "mscale_all_dim": 0.5, **LONG},
        {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.5, **LONG},
        {"rope_type": "yarn", "beta_fast": 0, "beta_slow": None, **LONG},
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LONG},
        {"rope_type": "longrope", **factors, **LONG},
        {"rope_type": "longrope", **factors, "original_max_position_embeddings": 16},
        {"rope_type": "longrope", **factors, "original_max_position_embeddings": 4},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 100.0},
    ]


ROPE = {
    "rope_parameters": [OUT, *ropes(4)],
    "rope_scaling": [OUT, *ropes(4)],
    "rope_theta": [OUT, 100.0, 500.0],
    "partial_rotary_factor": [OUT, 0.5, 0.9, 1.0],
    "original_max_position_embeddings": [OUT, 8],
    "max_position_embeddings": [32, 64, 5],
}
PHI_FACTORS = {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.0, 4.0, 5.0]}
PHI_ROPES = [
    None,
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
    *({"type": kind, **PHI_FACTORS} for kind in ("longrope", "su", "yarn")),
    {"rope_type": "longrope", "factor": 3.0, "original_max_position_embeddings": 4, **PHI_FACTORS},
    {"rope_type": "longrope", "attention_factor": 0.7, "short_mscale": 1.2, **PHI_FACTORS},
    {"type": "longrope", "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]},
]
MSCALES = {"short_mscale": 1.2, "long_mscale": 1.2}
PHIMOE_ROPES = [
    None,
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_theta": 500.0, "short_mscale": 2.0},
    *({"type": "longrope", **PHI_FACTORS, **MSCALES, "original_max_position_embeddings": size} for size in (4, 16)),
    {"rope_type": "longrope", "rope_theta": 100.0, "factor": 3.0, "attention_factor": 0.7, **PHI_FACTORS, **MSCALES},
    {"rope_type": "longrope", **PHI_FACTORS, "short_mscale": 1, "long_mscale": 1},
]
HUNYUAN_ROPES = [
    *ropes(4),
    {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0},
    {"rope_type": "dynamic", "alpha": 3, "factor": 2.0, "rope_theta": 100.0},
    {"rope_type": "dynamic", "alpha": None, "factor": 2.0},
    {"rope_type": "default", "alpha": 3.0},
]
MINISTRAL_ROPES = [
    None,
    *({"llama_4_scaling_beta": 0.3, "original_max_position_embeddings": 4, **(rope or {})} for rope in ropes(4)),
    {"type": "yarn", "llama_4_scaling_beta": 0, "mscale": 1.0, "mscale_all_dim": 1.0, **LONG},
    {"type": "yarn", "llama_4_scaling_beta": 0.1, "factor": 2.0, "original_max_position_embeddings": 3},
    {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 3},
]
# for each type of layers
TYPED_ROPES = [
    *(
        {"full_attention": one, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}
        for one in ropes(4)
    ),
    *(
        {"full_attention": {"rope_theta": 90.0, "partial_rotary_factor": 1.0}, "sliding_attention": one}
        for one in ropes(4)
    ),
    *(
        {kind: {"rope_theta": theta, "partial_rotary_factor": share, "rope_type": "default"} for kind, share in pair}
        for theta, pair in (
            (50.0, (("full_attention", 0.5), ("sliding_attention", 1.0))),
            (70.0, (("full_attention", 0.0), ("sliding_attention", 0.4))),
        )
    ),
]
# of half of a head
CUT_ROPE = {
    **{f"rope_{name}": [OUT, *ropes(2)] for name in ("parameters", "scaling")},
    "partial_rotary_factor": [OUT, None, 0.25, 0.5, 0.9, 1.0],
}
# padding tokens of families whose default is outside of the vocabulary
PADDED = {"pad_token_id": [None, 0, 2, 12]}
SEED_LLAMA = {
    "head_dim": [OUT, None, 6, 12],
    "num_key_value_heads": [OUT, None, 1, 2],
    "num_attention_heads": [2, 4],
    "hidden_act": [OUT, "silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh"],
    "rms_norm_eps": EPS,
    "tie_word_embeddings": TIED,
    "attention_dropout": DROPOUT,
    "attention_bias": [OUT, True, False],
    "intermediate_size": [7, 20],
    "token_classification_bias": [OUT, True, False],
    **ROPE,
    **TOKENS,
    **LABELS,
}
# what counts in the loss only
ROUTED = {"output_router_logits": [OUT, True, False], "router_aux_loss_coef": [OUT, 0.0, 0.1]}
GEMMA = SEED_LLAMA | {
    "head_dim": [4, 6, 12],
    "num_key_value_heads": [1, 2],
    "use_bidirectional_attention": [OUT, None, False],
}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
ALTERNATING |= {"head_dim": 8, "query_pre_attn_scalar": 9}
PERI_GEMMA = {name: GEMMA[name] for name in GEMMA if name != "hidden_act"} | {
    "hidden_activation": [OUT, *ACTIVATIONS],
    "query_pre_attn_scalar": [OUT, 4, 8, 16],
    "attn_logit_softcapping": [OUT, None, 1.0, 5.0],
    "final_logit_softcapping": [OUT, None, 1.0, 5.0],
}
GEMMA3_FIELDS = (
    PERI_GEMMA
    | PATTERN
    | {
        "sliding_window": [OUT, 3, 5],
        "rope_local_base_freq": [OUT, 50.0, 700.0],
        "rope_parameters": [
            *(OUT, None, {"full_attention": {"rope_type": "default", "rope_theta": 90.0}}),
            *({"full_attention": rope, "sliding_attention": {"rope_theta": 300.0}} for rope in ropes(4)),
            {"full_attention": None, "sliding_attention": {"rope_type": "linear", "factor": 2.0}},
        ],
    }
)
S, F = "sliding_attention", "full_attention"
GEMMA4 = LLAMA | {"num_hidden_layers": 4, "layer_types": [S, F, S, F], "sliding_window": 3, "head_dim": 8}
GEMMA4 |= {"global_head_dim": 12, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": WORDS}
GEMMA4 |= {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 10}
GEMMA4_FIELDS = {
    name: PERI_GEMMA[name]
    for name in PERI_GEMMA
    if name not in ("query_pre_attn_scalar", "attn_logit_softcapping", "token_classification_bias")
} | {
    "use_bidirectional_attention": [OUT, None, "vision"],
    "rope_parameters": [
        *(OUT, None, {F: {"rope_type": "default", "rope_theta": 90.0}, S: None}),
        *(
            {
                F: {"rope_theta": 50.0, "rope_type": "default"} | (rope or {}),
                S: {"rope_type": "default", "rope_theta": 30},
            }
            for rope in ropes(6)
        ),
        {
            F: {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 90.0, "factor": 2.0},
            S: {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
        },
    ],
    "layer_types": [OUT, None, [F, S, F, F], [S] * 4, [F] * 4, [S, S, F, F]],
    "sliding_window": [OUT, 3, 5],
    "global_head_dim": [8, 6, 16],
    "num_global_key_value_heads": [OUT, None, 1, 2],
    "per_layer_config": [
        *(OUT, OUT, None, {}, {"1": {"head_dim": 10}, "3": {"head_dim": 10}}),
        *({"01": {"num_key_value_heads": 2}, "3": {"num_key_value_heads": 2, "head_dim": 6}},),
        *({"0": {"head_dim": 8}, "1": {"num_key_value_heads": 2}, "3": {"num_key_value_heads": 2}},),
    ],
    "attention_k_eq_v": [OUT, True, True, False],
    "num_kv_shared_layers": [OUT, 0, 1, 2, 2, 3],
    "use_double_wide_mlp": [OUT, True, True, False],
    "hidden_size_per_layer_input": [0, 0, 6, 4],
    "vocab_size_per_layer_input": [WORDS, WORDS + 3],
    "enable_moe_block": [OUT, True, True, False],
    "num_experts": [None, 3, 5],
    "top_k_experts": [1, 3],
    "moe_intermediate_size": [6, 14],
}
BERT_FIELDS = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    "classifier_dropout": [None, 0.1],
    "type_vocab_size": [OUT, 1, 3],
    "layer_norm_eps": EPS,
    "position_embedding_type": [OUT, "absolute", "relative_key"],
    "tie_word_embeddings": TIED,
    "num_attention_heads": [1, 4],
    "max_position_embeddings": [16, 40],
    "is_decoder": [OUT, True, False],
    "add_cross_attention": [OUT, True, False],
    **TOKENS,
    **LABELS,
}
BERT = {"vocab_size": WORDS, **SMALL, "max_position_embeddings": 32}
VISION = {**SMALL, "image_size": 8, "patch_size": 4, "num_channels": 2}
VISION_FIELDS = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "head_dim": [OUT, 4, 6, 8],
    "num_attention_heads": [1, 3, 4],
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    "layer_norm_eps": EPS,
    "qkv_bias": [OUT, True, False],
    "image_size": [8, [8, 8], [8, 16]],
    "patch_size": [2, 4, [4, 4], [4, 2]],
    "num_labels": [OUT, 2, 3],
    "id2label": [OUT, None, {"0": "eel", "1": "newt", "2": "frog"}],
}
T5_SIZES = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 12, "num_layers": 2, "num_heads": 2} | {
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 40,
}
T5_FIELDS = {
    "num_decoder_layers": [OUT, None, 1, 3],
    "num_heads": [1, 4],
    "d_kv": [OUT, 4, 6],
    "relative_attention_num_buckets": [OUT, 8, 7, 6],
    "relative_attention_max_distance": [OUT, 20, 12],
    "dropout_rate": DROPOUT,
    "layer_norm_epsilon": EPS,
    "initializer_factor": [1.0],
    "feed_forward_proj": [
        OUT,
        "relu",
        "gated-gelu",
        "gelu",
        "gated-silu",
        "silu",
        "gelu_new",
        "gated-gelu_new",
    ],
    "dense_act_fn": [OUT, "gelu", "silu"],
    "is_gated_act": [OUT, None, True, False],
    "scale_decoder_outputs": [OUT, None, True, False],
    "classifier_dropout": DROPOUT,
    "tie_word_embeddings": TIED,
    "decoder_start_token_id": [OUT, None, 0, 40],
    "bos_token_id": [OUT, None, 1],
    "pad_token_id": [OUT, None, 0, 40],
    "eos_token_id": [OUT, None, 1, 40, [1, 2]],
    "is_decoder": [OUT, True, False],
    "is_encoder_decoder": [OUT, True, False],
}
NO_DINOV3 = ("qkv_bias", "hidden_dropout_prob", "attention_probs_dropout_prob")
DINO_FIELDS = VISION_FIELDS | {
    "mlp_ratio": [OUT, 1, 2, 3],
    "layerscale_value": [OUT, 0.5],
    "drop_path_rate": DROPOUT,
    "use_swiglu_ffn": [OUT, True, False],
    "apply_layernorm": [OUT, True, False],
    "reshape_hidden_states": [OUT, False],
    "out_features": [OUT, ["stage1"]],
    "out_indices": [OUT, [1]],
}
GPT = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
GPT_FIELDS = {
    "n_inner": [OUT, None, 12],
    "activation_function": [OUT, *ACTIVATIONS],
    "resid_pdrop": DROPOUT,
    "embd_pdrop": DROPOUT,
    "attn_pdrop": DROPOUT,
    "layer_norm_epsilon": EPS,
    "tie_word_embeddings": TIED,
    **TOKENS,
    **LABELS,
}
LM, MASKED, BASE, CLASSES, PAIRS = "CausalLM", "MaskedLM", "", "ImageClassification", "Seq2SeqLM"
TEXTS = "TextEncoding"
TEXT_CLASSES, TOKEN_CLASSES, SPANS = "SequenceClassification", "TokenClassification", "QuestionAnswering"
# of the tokens that a generator replaced
REPLACED = "PreTraining"
ENCODER_HEADS = [MASKED, MASKED, BASE, TEXT_CLASSES, TOKEN_CLASSES, SPANS]
DECODER_HEADS = [LM, LM, LM, BASE, BASE, TEXT_CLASSES, TEXT_CLASSES, TOKEN_CLASSES, SPANS]
MODERNBERT_FIELDS = {
    "hidden_activation": [OUT, *ACTIVATIONS],
    "norm_eps": EPS,
    "norm_bias": [OUT, True, False],
    "attention_bias": [OUT, True, False],
    "attention_dropout": DROPOUT,
    "layer_types": [OUT, None, ["full_attention", "sliding_attention"], ["sliding_attention"] * 2],
    "global_attn_every_n_layers": [OUT, 1, 2],
    "rope_parameters": [
        OUT,
        None,
        {"full_attention": {"rope_type": "default", "rope_theta": 90.0}},
        {
            "full_attention": {"rope_type": "linear", "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
        {"full_attention": None, "sliding_attention": {"rope_theta": 300.0}},
    ],
    "rope_scaling": [OUT, OUT, None, {"rope_type": "linear", "factor": 2.0}],
    "global_rope_theta": [OUT, 100.0],
    "local_rope_theta": [OUT, 500.0],
    "local_attention": [OUT, 4, 5],
    "sliding_window": [OUT, OUT, 2, 3],
    "embedding_dropout": DROPOUT,
    "mlp_bias": [OUT, True, False],
    "mlp_dropout": DROPOUT,
    "decoder_bias": [OUT, True, False],
    "classifier_dropout": DROPOUT,
    "classifier_bias": [OUT, True, False],
    "classifier_activation": [OUT, *ACTIVATIONS],
    "initializer_cutoff_factor": [2.0],
    "tie_word_embeddings": TIED,
    **LABELS,
}
GRANITE_FACTORS = {
    "embedding_multiplier": [OUT, 1, 3, 12.0],
    "residual_multiplier": [OUT, 0.22, 1, 2.0],
    "attention_multiplier": [OUT, 0.0078125, 0.3, 0.125, 1],
    "logits_scaling": [OUT, 1, 3, 7.0, 16.0],
}
GRANITE_MOE = (
    {name: SEED_LLAMA[name] for name in SEED_LLAMA if name != "token_classification_bias"}
    | GRANITE_FACTORS
    | ROUTED
    | {"hidden_act": [OUT, *ACTIVATIONS], "num_local_experts": [OUT, 3, 5], "num_experts_per_tok": [OUT, 1, 3]}
)
ALTERNATING_GRANITE = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3}
GRANITE_SWA = (
    {name: SEED_LLAMA[name] for name in SEED_LLAMA if name != "token_classification_bias"}
    | GRANITE_FACTORS
    | {
        "sliding_window": [OUT, None, 3, 5],
        "layer_types": [OUT, None, ["sliding_attention", "full_attention"], ["sliding_attention"] * 2],
        "layer_rope_theta": [OUT, None, [100.0, 500.0], [0, 300], [100, 0.0, 200], [0, 0]],
    }
)
DEEPSEEK = (
    LLAMA
    | {"n_routed_experts": 6, "n_group": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
    | {"first_k_dense_replace": 1, "n_shared_experts": 1, "routed_scaling_factor": 1.5}
)
DEEPSEEK_MOE = (
    {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
    | ROUTED
    | {
        "hidden_act": [OUT, *ACTIVATIONS],
        "intermediate_size": [7, 20, 40],
        "moe_intermediate_size": [7, 40],
        "num_experts_per_tok": [1, 3, 4],
        "n_shared_experts": [OUT, 1, 2, 3],
        "n_routed_experts": [4, 12],
        "routed_scaling_factor": [OUT, 1, 0.5, 2.5],
        "n_group": [OUT, 1, 2, 3, 4],
        "topk_group": [OUT, 1, 2],
        "first_k_dense_replace": [OUT, 0, 1, 2, 5],
        "norm_topk_prob": [OUT, True, False],
    }
)
MLP_KINDS = [OUT, None, ["sparse", "sparse"], ["dense", "sparse"], ["sparse", "dense"], ["dense", "dense"]]
NEAR_ROPE = {"rope_type": "default", "rope_theta": 300.0}
NULL_NORMALISE = {"norm_topk_prob": [OUT, None, True, False]}
LATENT = DEEPSEEK | {"num_key_value_heads": 2, "kv_lora_rank": 8, "q_lora_rank": 6, "topk_group": 1}
LATENT |= {"qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "v_head_dim": 5}
LATENT_ROPES = [
    *ropes(4),
    {"rope_type": "yarn", "mscale_all_dim": 0.7, **LONG},
    {"rope_type": "linear", "factor": 4.0, "mscale_all_dim": 1.0},
    {"rope_type": "default", "factor": 4.0, "mscale_all_dim": 1.0},
]
LATENT_MOE = (
    {name: values for name, values in DEEPSEEK_MOE.items() if name != "head_dim"}
    | {f"rope_{name}": [OUT, *LATENT_ROPES] for name in ("parameters", "scaling")}
    | {
        # 3 over 2 key heads is 1
        "num_attention_heads": [2, 3],
        "num_key_value_heads": [2, 3],
        "kv_lora_rank": [4, 12],
        "q_lora_rank": [None, 4, 10],
        "qk_rope_head_dim": [8, 12],
        "qk_nope_head_dim": [3, 8],
        "v_head_dim": [3, 8, 12],
        "pretraining_tp": [1, 2],
    }
)
LATENT_SIZES = ("_head_dim", "_lora_rank", "_attention_heads", "_key_value_heads")
DENSE_LATENT = LLAMA | {name: LATENT[name] for name in LATENT if name.endswith(LATENT_SIZES)}
DENSE_LATENT_FIELDS = {
    name: LATENT_MOE[name] for name in LATENT_MOE if name in SEED_LLAMA or name.endswith(LATENT_SIZES)
} | {"pretraining_tp": [1, 2]}
KIMI = DENSE_LATENT | {"q_lora_rank": None, "num_hidden_layers": 3, "pad_token_id": None}
KIMI |= {"linear_num_heads": 3, "linear_head_dim": 5, "linear_conv_kernel_dim": 3, "routed_scaling_factor": 1.5}
KIMI |= {"num_experts": 6, "num_experts_per_token": 2, "moe_intermediate_size": 10}
KIMI |= {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
KIMI_LISTS = [
    {"full_attn_layers": [2], "kda_layers": [1, 3]},
    {"full_attn_layers": [1, 2], "kda_layers": [3, 2]},
    {"full_attn_layers": [], "kda_layers": [1, 2, 3]},
    {"full_attn_layers": [2], "kda_layers": [1]},
    {"full_attn_layers": [3], "kda_layers": [0, 1, 2]},
    {"kda_layers": [1, 2]},
    {"full_attn_layers": [1, 4], "kda_layers": [2, 3]},
]
KIMI_FIELDS = (
    {name: values for name, values in LATENT_MOE.items() if name not in ("n_routed_experts", "first_k_dense_replace")}
    | PADDED
    | {
        "linear_num_heads": [1, 2],
        "linear_head_dim": [1, 4, 8],
        "linear_conv_kernel_dim": [OUT, 1, 2],
        "linear_attn_config": [
            *(OUT, {}, {"num_heads": 2}, {"head_dim": 4, "short_conv_kernel_size": 2, "num_heads": 1}),
            *KIMI_LISTS,
        ],
        "layer_types": [
            *(OUT, OUT, OUT, None, ["full_attention"] * 3, ["linear_attention"] * 3),
            ["linear_attention", "linear_attention", "full_attention"],
            ["attention", "mamba", "linear_attention"],
            ["sliding_attention", "full_attention", "linear_attention"],
            ["linear_attention", "full_attention"],
        ],
        "mlp_layer_types": [
            *(OUT, None, ["sparse"] * 3, ["dense"] * 3, ["dense", "sparse", "dense"], ["dense", "sparse"]),
        ],
        "first_k_dense_replace": [OUT, 0, 1, 2, 5],
        "num_experts": [4, 12],
        "num_local_experts": [8],
        "num_experts_per_token": [1, 3, 4],
        "num_shared_experts": [OUT, 1, 2],
        "num_expert_group": [OUT, 1, 2, 3],
        "moe_renormalize": [OUT, True, False],
        "model_max_length": [OUT, 64],
        "moe_layer_freq": [1, 2],
        "mla_use_nope": [True],
        "use_grouped_topk": [True],
        "moe_router_activation_func": ["sigmoid"],
        "head_dim": [OUT, 6, 12],
    }
)
QWEN_MOE = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "num_experts": [0, 3, 5],
    "num_experts_per_tok": [1, 3],
    "norm_topk_prob": [OUT, True, False],
    "decoder_sparse_step": [OUT, 1, 2, 3, 4],
    "intermediate_size": [7, 20, 40],
    "mlp_only_layers": [OUT, None, [], [1], [0, 2], [0, 1, 2], [7]],
    "moe_intermediate_size": [7, 40],
}
HYBRID = LLAMA | {"head_dim": 16, "num_hidden_layers": 3}
HYBRID |= {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
HYBRID |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 5}
HYBRID |= {"linear_value_head_dim": 6, "linear_conv_kernel_dim": 3}
HYBRID_FIELDS = CUT_ROPE | {
    "hidden_act": [OUT, *ACTIVATIONS],
    "head_dim": [8, 12, 24],
    "full_attention_interval": [OUT, 1, 2, 3, 5],
    "num_key_value_heads": [1, 2],
    "layer_types": [
        OUT,
        None,
        ["full_attention"] * 3,
        ["linear_attention"] * 3,
        ["attention", "mamba", "mamba"],
        ["linear_attention", "full_attention"],
        ["sliding_attention", "full_attention", "linear_attention"],
    ],
    "linear_num_key_heads": [1, 2, 4, 3, 8],
    "linear_num_value_heads": [2, 4, 8, 6, 5],
    "linear_key_head_dim": [3, 6, 16],
    "linear_value_head_dim": [3, 5, 16],
    "linear_conv_kernel_dim": [OUT, 1, 2, 5],
}
MAMBA_HYBRID = LLAMA | {"num_hidden_layers": 3, "mamba_n_heads": 8, "mamba_d_state": 6, "mamba_n_groups": 2}
LIMITS = [
    OUT,
    [0.0, {"__float__": "Infinity"}],
    [0.3, 0.9],
    [-1.0, 0.5],
    [0.5, 0.3],
]
MAMBA_HYBRID_FIELDS = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "mamba_n_heads": [2, 4, 16, 3],
    "mamba_d_head": [OUT, "auto", 4, 8],
    "mamba_n_groups": [OUT, 1, 2, 4, 3],
    "mamba_d_state": [3, 6],
    "mamba_d_conv": [OUT, 1, 2, 5],
    "mamba_expand": [OUT, 1, 2, 3],
    "mamba_chunk_size": [OUT, 2, 4],
    "mamba_conv_bias": [OUT, None, True, False],
    "mamba_proj_bias": [OUT, None, True, False],
    "time_step_limit": LIMITS,
    "use_cache": [OUT, False],
}
MAMBA = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 6}
MAMBA_FIELDS = {
    "hidden_size": [24, 20],
    "expand": [OUT, 1, 3],
    "intermediate_size": [OUT, OUT, 32, 20, 8],
    "state_size": [OUT, 1, 3],
    "conv_kernel": [OUT, 1, 2, 5],
    "use_bias": [OUT, True, False],
    "use_conv_bias": [OUT, True, False],
    "hidden_act": [OUT, *ACTIVATIONS],
    "layer_norm_epsilon": EPS,
    "residual_in_fp32": [OUT, True, False],
    "rescale_prenorm_residual": [OUT, True, False],
    "time_step_rank": [OUT, "auto", 1, 3],
    "time_step_min": [OUT, 0.01],
    "time_step_max": [OUT, 0.5],
    "time_step_scale": [OUT, 2.0],
    "time_step_floor": [OUT, 0.01],
    "time_step_init_scheme": [OUT, "constant"],
    "use_mambapy": [OUT, True, False],
    "use_associative_scan": [OUT, True, False],
    "use_cache": [OUT, False],
    "tie_word_embeddings": TIED,
    **TOKENS,
}
JAMBA = LLAMA | {"num_hidden_layers": 3, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4}
JAMBA |= {"mamba_d_state": 6}
LFM3 = LLAMA | {"num_hidden_layers": 4, "layer_types": ["conv", S, F, "conv"], "sliding_window": 3, "head_dim": 8}
LFM3 |= {"pad_token_id": 0}
LFM3_FIELDS = {
    name: values
    for name, values in SEED_LLAMA.items()
    if name not in ("token_classification_bias", "rms_norm_eps", "num_key_value_heads", "head_dim", *ROPE)
} | {
    "rope_theta": ROPE["rope_theta"],
    "partial_rotary_factor": [OUT, 0.5],
    "original_max_position_embeddings": [OUT, 8],
    "max_position_embeddings": ROPE["max_position_embeddings"],
    "rope_scaling": [OUT, None, {F: {"rope_type": "linear", "factor": 2.0}, S: {"rope_theta": 30.0}}],
    "rope_parameters": [OUT, None, *TYPED_ROPES],
    **PADDED,
    "num_key_value_heads": [1, 2],
    "head_dim": [4, 6, 12],
    "norm_eps": EPS,
    "rms_norm_eps": [0.1],
    "hidden_act": [OUT, *ACTIVATIONS],
    "tie_embedding": [OUT, True, False],
    "conv_bias": [OUT, True, False],
    "conv_L_cache": [OUT, 1, 2, 5],
    "use_sandwich_norm": [OUT, True, False],
    "use_attention_gate": [OUT, True, False],
    "sliding_window": [OUT, 2, 5],
    "layer_types": [
        OUT,
        None,
        [F] * 4,
        ["conv"] * 4,
        [S, "conv", S, S],
        [F, "conv", "conv", F],
        ["conv", "mamba", F, S],
    ],
}
LFM2 = LLAMA | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
LFM2_FIELDS = {
    name: values
    for name, values in SEED_LLAMA.items()
    if name not in ("token_classification_bias", "rms_norm_eps", "num_key_value_heads", "head_dim")
} | {
    "num_key_value_heads": [None, 1, 2],
    "head_dim": [OUT, 6, 12],
    "norm_eps": EPS,
    "rms_norm_eps": [0.1],
    "hidden_act": [OUT, *ACTIVATIONS],
    "partial_rotary_factor": [OUT, None, 0.5],
    "tie_embedding": [OUT, True, False],
    "conv_bias": [OUT, True, False],
    "conv_L_cache": [OUT, 1, 2, 5],
    "layer_types": [
        OUT,
        None,
        ["full_attention"] * 3,
        ["conv"] * 3,
        ["attention", "conv", "conv"],
        ["conv", "full_attention"],
        ["mamba", "full_attention", "conv"],
        ["sliding_attention", "full_attention", "conv"],
    ],
    "full_attn_idxs": [OUT, None, [], [1], [2, 0], [0, 5], [-1]],
    "use_cache": [OUT, False],
}
# family: (sizes, fields and their values, heads of transformers)
MARIAN = (
    {"vocab_size": WORDS, "d_model": 16, "max_position_embeddings": 32, "pad_token_id": 18, "eos_token_id": 0}
    | {"decoder_start_token_id": 18, "forced_eos_token_id": None}
    | {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 12))
    }
)
MARIAN_FIELDS = {
    "decoder_vocab_size": [OUT, None, WORDS, 25],
    **{f"{side}_attention_heads": [1, 2, 4] for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": [8, 12] for side in ("encoder", "decoder")},
    "decoder_start_token_id": [0, 40],
    "pad_token_id": [None, 0, -1],
    "eos_token_id": [OUT, None, 0, 1, 40, [1, 2]],
    "encoder_layers": [1, 3],
    "decoder_layers": [1, 3],
    "encoder_layerdrop": [0.0],
    "decoder_layerdrop": [0.0],
    "activation_function": [OUT, *ACTIVATIONS],
    "dropout": DROPOUT,
    "attention_dropout": DROPOUT,
    "activation_dropout": DROPOUT,
    "init_std": [0.02],
    "bos_token_id": [OUT, None],
    "scale_embedding": [OUT, True, False],
    "share_encoder_decoder_embeddings": [OUT, True, False],
    "tie_word_embeddings": TIED,
    "static_position_embeddings": [OUT, True],
    "normalize_before": [OUT, True, False],
    "is_decoder": [OUT, True, False],
    "is_encoder_decoder": [OUT, True, False],
    "bad_words_ids": [OUT, [[18]]],
    "num_beams": [OUT, 4],
}
BART_FIELDS = {key: MARIAN_FIELDS[key] for key in MARIAN_FIELDS if not key.startswith("share_")} | {
    "decoder_vocab_size": [OUT, 25],
    "classifier_dropout": [0.1],
    "forced_eos_token_id": [OUT, None, 2],
    "add_final_layer_norm": [OUT, True],
    "normalize_embedding": [OUT, False],
    "extra_pos_embeddings": [OUT, 2],
    **LABELS,
}
FIELDS = {
    "llama": (LLAMA, SEED_LLAMA | {"mlp_bias": [OUT, True, False], "pretraining_tp": [1, 2]}, DECODER_HEADS),
    "seed_oss": (
        LLAMA | {"head_dim": 8},
        SEED_LLAMA
        | {name: [OUT, True, False] for name in ("attention_out_bias", "mlp_bias")}
        | {"residual_dropout": DROPOUT, "pretraining_tp": [1, 2], "hidden_act": [OUT, *ACTIVATIONS]},
        DECODER_HEADS,
    ),
    "arcee": (LLAMA, SEED_LLAMA | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS]}, DECODER_HEADS),
    "apertus": (
        LLAMA,
        SEED_LLAMA | {"hidden_act": [OUT, *ACTIVATIONS, "xielu", "xielu"], "head_dim": [OUT, 6, 12]},
        [LM, LM, LM, BASE, TOKEN_CLASSES],
    ),
    "hunyuan_v1_dense": (
        LLAMA | {"head_dim": 8},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {"hidden_act": [OUT, *ACTIVATIONS], "head_dim": [OUT, 6, 12]}
        | {"eod_token_id": [OUT, None, 3], "pretraining_tp": [1, 2]}
        | {f"rope_{name}": [OUT, *HUNYUAN_ROPES] for name in ("parameters", "scaling")},
        [LM, LM, LM, BASE, TEXT_CLASSES],
    ),
    "ministral3": (
        LLAMA | {"head_dim": 8},
        {name: values for name, values in SEED_LLAMA.items() if name != "attention_bias"}
        | {"hidden_act": [OUT, *ACTIVATIONS], "sliding_window": [OUT, None, 3], "head_dim": [6, 12]}
        | {f"rope_{name}": [OUT, *MINISTRAL_ROPES] for name in ("parameters", "scaling")},
        DECODER_HEADS,
    ),
    "nemotron": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name != "rms_norm_eps"}
        | {"norm_eps": EPS, "mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS]}
        | {"num_key_value_heads": [1, 2]}
        | CUT_ROPE,
        DECODER_HEADS,
    ),
    "persimmon": (
        {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"},
        {
            name: SEED_LLAMA[name]
            for name in SEED_LLAMA
            if name not in ("attention_bias", "rms_norm_eps", "num_key_value_heads", "head_dim")
        }
        | {"hidden_act": [OUT, *ACTIVATIONS], "layer_norm_eps": EPS, "qk_layernorm": [OUT, True, False]}
        | {"hidden_dropout": DROPOUT, "head_dim": [OUT, None]}
        | CUT_ROPE,
        DECODER_HEADS[:-1],
    ),
    "ernie4_5": (
        LLAMA | {"head_dim": 8},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "token_classification_bias")}
        | {"use_bias": [OUT, None, True, False], "hidden_act": [OUT, *ACTIVATIONS]},
        [LM, LM, BASE],
    ),
    "helium": (
        LLAMA | {"head_dim": 8},
        SEED_LLAMA
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS]}
        | {"num_key_value_heads": [1, 2], "head_dim": [8, 6]},
        DECODER_HEADS[:-1],
    ),
    "mistral": (LLAMA, SEED_LLAMA | {"sliding_window": [OUT, None, 3]}, DECODER_HEADS),
    "ministral": (
        LLAMA | {"head_dim": 8},
        SEED_LLAMA | {"head_dim": [6, 12], "sliding_window": [OUT, None, 3], "layer_types": WINDOWS["layer_types"]},
        DECODER_HEADS,
    ),
    "qwen2": (LLAMA, SEED_LLAMA | WINDOWS, DECODER_HEADS),
    "qwen3": (LLAMA | {"head_dim": 8}, SEED_LLAMA | WINDOWS | {"head_dim": [6, 12, OUT]}, DECODER_HEADS),
    "smollm3": (
        LLAMA | {"pad_token_id": None, "no_rope_layers": [1, 0]},
        SEED_LLAMA
        | WINDOWS
        | PADDED
        | {"mlp_bias": [OUT, True, False], "no_rope_layer_interval": [OUT, 1, 2, 3]}
        | {"no_rope_layers": [OUT, None, [1, 1], [0, 1, 1], [0, 0]]},
        DECODER_HEADS,
    ),
    "phi3": (
        LLAMA | {"pad_token_id": None},
        {name: values for name, values in SEED_LLAMA.items() if name != "attention_bias"}
        | PADDED
        | {"sliding_window": [OUT, None, 3], "resid_pdrop": DROPOUT, "embd_pdrop": DROPOUT}
        | {f"rope_{name}": [OUT, *PHI_ROPES] for name in ("parameters", "scaling")}
        | {"original_max_position_embeddings": [OUT, 4, 16], "partial_rotary_factor": [OUT, 0.5, 0.4, 1.0]},
        DECODER_HEADS[:-1],
    ),
    "exaone": (
        LLAMA,
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS]},
        [LM, LM, BASE],
    ),
    "cwm": (
        LLAMA | {"head_dim": 8, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "token_classification_bias")}
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS], "head_dim": [6, 12]}
        | {"num_key_value_heads": [1, 2], "bos_token_id": [OUT, 1], "pretraining_tp": [1, 2]}
        | {"sliding_window": [OUT, 0, 3, 5], "layer_types": [*WINDOWS["layer_types"], ["full_attention"] * 2]},
        [LM, LM, BASE],
    ),
    "iquestcoder": (
        LLAMA | {"head_dim": 8},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS], "clip_qkv": [OUT, None, 0.5]}
        | {"use_sliding_window": [OUT, None, False, True]},
        [LM, LM, BASE],
    ),
    "hyperclovax": (
        LLAMA,
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | GRANITE_FACTORS
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS], "use_post_norm": [OUT, True, False]}
        | {"attention_multiplier": [OUT, None, 0.3, 0.125]},
        [LM, LM, BASE],
    ),
    "exaone4": (
        LLAMA | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3},
        {name: values for name, values in SEED_LLAMA.items() if name != "attention_bias"} | PATTERN,
        DECODER_HEADS,
    ),
    "cohere": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("rms_norm_eps", "token_classification_bias")}
        | {"layer_norm_eps": EPS, "logit_scale": [OUT, 0.25, 1.0, 3.0], "use_qk_norm": [OUT, True, False]}
        | {"hidden_act": [OUT, *ACTIVATIONS], "head_dim": [OUT, 6, 12]},
        [LM, LM, BASE],
    ),
    "cohere2": (
        LLAMA | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("rms_norm_eps", "token_classification_bias")}
        | PATTERN
        | {"layer_norm_eps": EPS, "logit_scale": [OUT, 0.25, 1.0, 3.0]},
        [LM, LM, BASE],
    ),
    "cohere2_moe": (
        LLAMA
        | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3, "head_dim": 8}
        | {"num_experts": 5, "num_shared_experts": 1},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("rms_norm_eps", "token_classification_bias")}
        | PATTERN
        | ROUTED
        | {"sliding_window": [OUT, 3, 5], "sliding_window_pattern": [OUT, 1, 2, 3], "rms_norm_eps": [OUT, None, 0.1]}
        | {"layer_norm_eps": EPS, "logit_scale": [OUT, 0.25, 1.0, 3.0], "head_dim": [6, 12], "num_experts": [OUT, 3]}
        | {"num_experts_per_tok": [OUT, 1, 3], "num_shared_experts": [OUT, 0, 1, 2], "norm_topk_prob": [OUT, False]}
        | {"shared_expert_combination_strategy": [OUT, "average", "sum", "mean"], "hidden_act": [OUT, *ACTIVATIONS]}
        | {"expert_selection_fn": [OUT, "softmax", "sigmoid", "relu"], "first_k_dense_replace": [OUT, 0, 1, 2]}
        | {"prefix_dense_sliding_window_pattern": [OUT, 1, 2], "prefix_dense_intermediate_size": [OUT, None, 20]}
        | {"mlp_layer_types": [OUT, None, ["sparse"] * 2, ["dense", "sparse"], ["sparse", "dense"], ["dense"] * 2]},
        [LM, LM, BASE],
    ),
    "olmo3": (
        LLAMA | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3},
        SEED_LLAMA
        | {name: PATTERN[name] for name in ("sliding_window", "layer_types")}
        | {
            "pad_token_id": [OUT, 0, 2, 12],
            "rope_parameters": [
                *(OUT, None, {"full_attention": {"rope_type": "default", "rope_theta": 90.0}}),
                *({"full_attention": rope, "sliding_attention": {"rope_theta": 300.0}} for rope in ropes(4)),
                {"full_attention": None, "sliding_attention": {"rope_type": "linear", "factor": 2.0}},
            ],
        },
        DECODER_HEADS[:-2],
    ),
    "gemma": (LLAMA | {"head_dim": 8}, GEMMA | {"hidden_act": [OUT, *ACTIVATIONS]}, DECODER_HEADS[:-1]),
    "gemma2": (
        LLAMA | ALTERNATING,
        PERI_GEMMA | {"sliding_window": [OUT, 3, 5], "layer_types": WINDOWS["layer_types"]},
        DECODER_HEADS[:-1],
    ),
    "vaultgemma": (
        LLAMA | ALTERNATING,
        {
            name: PERI_GEMMA[name]
            for name in PERI_GEMMA
            if name not in ("use_bidirectional_attention", "token_classification_bias")
        }
        | {"sliding_window": [OUT, 3, 5], "layer_types": WINDOWS["layer_types"]},
        [LM, LM, BASE],
    ),
    "gemma3_text": (
        LLAMA | ALTERNATING | {"sliding_window_pattern": 2},
        GEMMA3_FIELDS,
        DECODER_HEADS[:-2],
    ),
    "gemma4_text": (GEMMA4, GEMMA4_FIELDS, [LM, LM, BASE]),
    "gemma4_unified_text": (
        GEMMA4,
        {name: GEMMA4_FIELDS[name] for name in GEMMA4_FIELDS if "expert" not in name and "_input" not in name},
        [LM, LM, BASE],
    ),
    "gemma3_text_encoder": (
        LLAMA | ALTERNATING | {"sliding_window_pattern": 2, "use_bidirectional_attention": True},
        {name: GEMMA3_FIELDS[name] for name in GEMMA3_FIELDS if name != "use_bidirectional_attention"}
        | {"sliding_window": [OUT, 1, 2, 3, 4, 5, 8]},
        [BASE],
    ),
    "granite": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name != "token_classification_bias"}
        | {
            "mlp_bias": [OUT, True, False],
            **GRANITE_FACTORS,
        },
        [LM, LM, BASE],
    ),
    "nanochat": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name != "token_classification_bias"}
        | {"hidden_act": [OUT, *ACTIVATIONS], "final_logit_softcapping": [OUT, None, 1.0, 5.0]}
        | {"pad_token_id": [OUT, None, 0, 2]},
        [LM, LM, BASE],
    ),
    "jais2": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("rms_norm_eps", "token_classification_bias")}
        | {"layer_norm_eps": EPS, "mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS]},
        [LM, LM, BASE],
    ),
    "internlm3": (
        LLAMA | {"head_dim": 8},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {"mlp_bias": [OUT, True, False], "hidden_act": [OUT, *ACTIVATIONS], "head_dim": [None, 6, 12]},
        [LM, LM, BASE],
    ),
    "solar_open": (
        {name: size for name, size in DEEPSEEK.items() if name not in ("intermediate_size", "first_k_dense_replace")}
        | {"head_dim": 8},
        {
            name: values
            for name, values in DEEPSEEK_MOE.items()
            if name not in ("intermediate_size", "first_k_dense_replace")
        }
        | {"head_dim": [6, 12], "num_key_value_heads": [1, 2]},
        [LM, LM, BASE],
    ),
    "exaone_moe": (
        {name: size for name, size in DEEPSEEK.items() if not name.startswith("n_") or name == "n_group"}
        | {"num_experts": 6, "num_shared_experts": 1, "topk_group": 1, "sliding_window": 3}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        {
            name: values
            for name, values in DEEPSEEK_MOE.items()
            if name not in ("attention_bias", "n_routed_experts", "n_shared_experts")
        }
        | PATTERN
        | {"num_experts": [4, 12], "num_shared_experts": [OUT, 1, 2, 3], "num_key_value_heads": [1, 2]}
        | {"head_dim": [OUT, 6, 12]}
        | {
            "mlp_layer_types": [
                *(OUT, None, ["sparse", "sparse"], ["dense", "sparse"], ["dense", "dense"], ["sparse"] * 3)
            ],
        },
        [LM, LM, BASE],
    ),
    "afmoe": (
        LLAMA
        | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "num_shared_experts": 1}
        | {"num_dense_layers": 1, "route_scale": 1.5, "sliding_window": 3, "head_dim": 8}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | {name: values for name, values in PATTERN.items() if name != "sliding_window_pattern"}
        | {"global_attn_every_n_layers": [OUT, 1, 2, 3], "sliding_window": [OUT, 3, 5], "head_dim": [6, 12]}
        | {"hidden_act": [OUT, *ACTIVATIONS], "moe_intermediate_size": [7, 40], "num_experts_per_tok": [1, 3, 4]}
        | {"num_experts": [4, 12], "num_shared_experts": [OUT, 1, 2, 3], "route_scale": [OUT, 1, 0.5, 2.5]}
        | {"num_dense_layers": [OUT, 0, 1, 2, 5], "mup_enabled": [OUT, None, True, False]},
        [LM, LM, BASE],
    ),
    "mimo_v2_flash": (
        {name: size for name, size in DEEPSEEK.items() if name not in ("first_k_dense_replace", "n_shared_experts")}
        | {"topk_group": 1, "sliding_window": 3, "head_dim": 8, "v_head_dim": 6}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        {
            name: values
            for name, values in DEEPSEEK_MOE.items()
            if name not in ("first_k_dense_replace", "n_shared_experts", "num_key_value_heads")
        }
        | {
            "layer_types": WINDOWS["layer_types"],
            "sliding_window": [OUT, 3, 5],
            "sliding_window_size": [OUT, None, 2, 4],
        }
        | {"head_dim": [6, 12], "v_head_dim": [3, 8, 12], "routed_scaling_factor": [OUT, None, 1, 0.5]}
        | {"num_attention_heads": [2, 4], "attention_value_scale": [OUT, None, 1, 0.5, 2.0]}
        | {"mlp_layer_types": [OUT, None, ["sparse", "sparse"], ["sparse", "dense"], ["dense"] * 2, ["sparse"] * 3]}
        | {"rope_parameters": [OUT, None, *TYPED_ROPES]},
        [LM, LM, BASE],
    ),
    "laguna": (
        LLAMA
        | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "head_dim": 8}
        | {"shared_expert_intermediate_size": 14, "sliding_window": 3, "num_attention_heads_per_layer": [2, 3]}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | {"layer_types": WINDOWS["layer_types"], "sliding_window": [OUT, 3, 5], "head_dim": [6, 12]}
        | {"hidden_act": [OUT, *ACTIVATIONS], "moe_intermediate_size": [7, 40], "num_experts_per_tok": [1, 3, 4]}
        | {"num_experts": [4, 12], "shared_expert_intermediate_size": [7, 20], "num_key_value_heads": [1, 2]}
        | {"num_attention_heads": [2, 4], "num_attention_heads_per_layer": [OUT, None, [2, 4], [4, 4], [6, 2], [2]]}
        | {"mlp_layer_types": [OUT, None, ["sparse", "sparse"], ["sparse", "dense"], ["dense"] * 2, ["sparse"] * 3]}
        | {"moe_routed_scaling_factor": [OUT, 1, 0.5, 2.5], "moe_router_logit_softcapping": [OUT, 0.0, 0.5, 3, -1.0]}
        | {"moe_apply_router_weight_on_input": [OUT, True, False]}
        | {"gating": [OUT, True, False, "per-head", "per-element", "none"]}
        | {"rope_parameters": [OUT, None, *TYPED_ROPES]},
        [LM, LM, BASE],
    ),
    "llama4_text": (
        LLAMA
        | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size_mlp": 14}
        | {"no_rope_layers": [1, 0], "attention_chunk_size": 4, "floor_scale": 3, "moe_layers": [1]},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | {"head_dim": [6, 12], "num_key_value_heads": [1, 2], "hidden_act": [OUT, *ACTIVATIONS]}
        | {"intermediate_size_mlp": [7, 20], "num_local_experts": [3, 5], "num_experts_per_tok": [OUT, 1, 3, 5]}
        | {"moe_layers": [OUT, None, [], [0], [1, 0], [1, 7]], "interleave_moe_layer_step": [OUT, 1, 2, 3, 0, -1]}
        | {"no_rope_layers": [OUT, None, [], [0, 1], [1, 1], [0, 0], [1, 0, 1], [1]], "router_jitter_noise": [0.1]}
        | {"no_rope_layer_interval": [OUT, 1, 2, 3], "use_qk_norm": [OUT, True, False]}
        | {"attention_chunk_size": [OUT, None, 1, 2, 3, 8, 9]}
        | {"attn_temperature_tuning": [OUT, True, False], "floor_scale": [OUT, 1, 2, 4, 9]}
        | {"attn_scale": [OUT, 0, 0.5, -0.3, 2]}
        | {
            "layer_types": [
                *(OUT, None, ["full_attention"] * 2, ["chunked_attention"] * 2),
                ["full_attention", "chunked_attention"],
                ["chunked_attention", "attention"],
                ["sliding_attention", "full_attention"],
                ["chunked_attention"],
            ],
        },
        [LM, LM, BASE],
    ),
    "granite_swa": (LLAMA | ALTERNATING_GRANITE, GRANITE_SWA | {"mlp_bias": [OUT, True, False]}, [LM, LM, BASE]),
    "granitemoe_swa": (
        LLAMA | ALTERNATING_GRANITE | {"num_local_experts": 4, "shared_intermediate_size": 10},
        GRANITE_SWA | GRANITE_MOE | {"shared_intermediate_size": [OUT, 0, 7, 40]},
        [LM, LM, BASE],
    ),
    "granitemoe": (LLAMA | {"num_local_experts": 4}, GRANITE_MOE, [LM, LM, BASE]),
    "granitemoeshared": (
        LLAMA | {"num_local_experts": 4, "shared_intermediate_size": 10},
        GRANITE_MOE | {"shared_intermediate_size": [OUT, 0, 7, 40]},
        [LM, LM, BASE],
    ),
    "granitemoehybrid": (
        MAMBA_HYBRID
        | {"num_local_experts": 4, "shared_intermediate_size": 10}
        | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
        GRANITE_MOE
        | MAMBA_HYBRID_FIELDS
        | {
            "num_local_experts": [OUT, 0, 0, 3, 5],
            "shared_intermediate_size": [0, 7, 40],
            "position_embedding_type": [OUT, None, "rope", "rope", "nope"],
            "layer_types": [
                OUT,
                None,
                ["full_attention"] * 3,
                ["linear_attention"] * 3,
                ["attention", "mamba", "mamba"],
                ["linear_attention", "full_attention"],
                ["sliding_attention", "full_attention", "linear_attention"],
            ],
        },
        [LM, LM, BASE],
    ),
    "lfm2": (
        LFM2 | {"block_multiple_of": 4},
        LFM2_FIELDS
        | {
            "block_ff_dim": [OUT, 7, 30],
            "block_multiple_of": [OUT, 1, 3, 8],
            "block_ffn_dim_multiplier": [OUT, 1, 0.5, 1.7, 0.01],
            "block_auto_adjust_ff_dim": [OUT, True, False],
        },
        [LM, LM, BASE],
    ),
    "lfm3": (LFM3, LFM3_FIELDS, [LM, LM, BASE]),
    "lfm2_moe": (
        LFM2
        | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"num_dense_layers": 1, "routed_scaling_factor": 1.5},
        LFM2_FIELDS
        | {
            "block_ff_dim": [OUT, 7, 30],
            "output_router_logits": ROUTED["output_router_logits"],
            "moe_intermediate_size": [7, 20],
            "num_experts_per_tok": [1, 3, 4],
            "num_experts": [4, 8],
            "num_dense_layers": [OUT, 0, 1, 2, 5],
            "use_expert_bias": [OUT, True, False],
            "routed_scaling_factor": [OUT, 1.0, 0.5, 2.5],
            "norm_topk_prob": [OUT, True, False],
        },
        [LM, LM, BASE],
    ),
    "jamba": (
        JAMBA,
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | {
            "head_dim": [OUT, 6, 12],
            "hidden_act": [OUT, *ACTIVATIONS],
            "num_experts": [OUT, 0, 1, 3],
            "num_experts_per_tok": [OUT, 1, 3],
            "expert_layer_period": [OUT, 1, 3, 5],
            "expert_layer_offset": [OUT, 0, 2],
            "attn_layer_period": [OUT, 1, 2, 4],
            "attn_layer_offset": [OUT, 0, 2, -1],
            **{name: [OUT, True, False] for name in ("use_mamba_kernels", "use_mambapy", "use_associative_scan")},
            "mamba_d_state": [OUT, 1, 3],
            "mamba_d_conv": [OUT, 1, 2, 5],
            "mamba_expand": [OUT, 1, 3],
            "mamba_dt_rank": [OUT, "auto", 1, 3],
            "mamba_conv_bias": [OUT, True, False],
            "mamba_proj_bias": [OUT, True, False],
            "use_cache": [OUT, False],
        },
        [LM, LM, BASE, TEXT_CLASSES],
    ),
    "bamba": (
        MAMBA_HYBRID | {"attn_layer_indices": [1]},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {f"rope_{name}": [OUT, *ropes(2)] for name in ("parameters", "scaling")}
        | MAMBA_HYBRID_FIELDS
        | {
            "mlp_bias": [OUT, True, False],
            "attn_layer_indices": [OUT, None, [], [0], [2, 0], [1, 5], [0, 1, 2], [-1]],
            "num_logits_to_keep": [OUT, 1, None],
            "z_loss_coefficient": [OUT, 0.1],
            "layers_block_type": [OUT, ["linear_attention", "full_attention", "linear_attention"]],
        },
        [LM, LM, BASE],
    ),
    "falcon_h1": (
        MAMBA_HYBRID | {"mamba_d_ssm": 24},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | MAMBA_HYBRID_FIELDS
        | {
            "mlp_bias": [OUT, True, False],
            "mamba_n_heads": [2, 4, 12, 3],
            "mamba_d_head": [OUT, "auto", 3, 8],
            "mamba_d_ssm": [None, 16, 24, 48],
            "projectors_bias": [OUT, None, False, True],
            "mamba_rms_norm": [OUT, True, True, False, None],
            "mamba_norm_before_gate": [OUT, True, False, None],
            "key_multiplier": [OUT, 0.3, 2, 0],
            "attention_in_multiplier": [OUT, 0.7, 1, -1.3],
            "attention_out_multiplier": [OUT, 0.7, 0, -1.3],
            "ssm_in_multiplier": [OUT, 0.7, 0, -1.3],
            "ssm_out_multiplier": [OUT, 0.7, 0, -1.3],
            "embedding_multiplier": [OUT, 5.7, 0.3, -1.3],
            "lm_head_multiplier": [OUT, 0.04, 3],
            "mlp_multipliers": [OUT, None, [0.7, 1.2], [-1, 0], [1.0]],
            "layers_block_type": [OUT, OUT, OUT, ["hybrid"] * 3],
            "ssm_multipliers": [OUT, None, [0.3, 0.2, 0.5, 0.7, 1.3], [-1, 1, 0, 2, 1], [1.0]],
            "num_logits_to_keep": [OUT, 1, None],
        },
        [LM, LM, BASE],
    ),
    "kimi_linear": (KIMI, KIMI_FIELDS, [LM, LM, BASE]),
    "nemotron_h": (
        {name: size for name, size in LLAMA.items() if name != "num_hidden_layers"}
        | {"head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 6, "ssm_state_size": 5, "n_groups": 2}
        | {"n_routed_experts": 4, "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 14},
        {
            "layers_block_type": [
                OUT,
                None,
                ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
                ["mamba", "moe", "mamba", "attention", "mlp"],
                ["full_attention", "moe", "full_attention"],
                ["linear_attention", "full_attention"],
                ["mlp", "linear_attention", "full_attention"],
            ],
            "hybrid_override_pattern": ["M-M*-", "ME*E", "M*"],
            "num_hidden_layers": [2, 5],
            "head_dim": [OUT, 6, 12],
            "num_key_value_heads": [None, 1, 2],
            "num_attention_heads": [2, 4],
            "intermediate_size": [7, 20],
            "mlp_hidden_act": [OUT, *ACTIVATIONS],
            "mlp_bias": [OUT, False, False, True],
            "attention_bias": [OUT, True, False],
            "attention_dropout": DROPOUT,
            "hidden_dropout": DROPOUT,
            "sliding_window": [OUT, None, 3],
            "use_mamba_kernels": [OUT],
            "ssm_state_size": [3, 6],
            "mamba_num_heads": [2, 8],
            "mamba_head_dim": [4, 5],
            "mamba_hidden_act": [OUT, *ACTIVATIONS],
            "n_groups": [1, 2, 4, 3],
            "mamba_n_groups": [1, 2],
            "conv_kernel": [OUT, 1, 2, 5],
            "mamba_d_conv": [2, 3],
            "expand": [OUT, 1, 3],
            "mamba_expand": [3],
            "time_step_min": [OUT, 0.0, 0.5],
            "mamba_dt_min": [0.3],
            "time_step_max": [OUT, 0.5],
            "time_step_limit": LIMITS,
            "time_step_floor": [OUT, 0.01],
            "use_conv_bias": [OUT, True, False],
            "mamba_conv_bias": [True, False],
            "chunk_size": [OUT, 2, 4],
            "mamba_proj_bias": [OUT, True, False],
            "mamba_ssm_cache_dtype": [OUT, "float32"],
            "n_routed_experts": [OUT, 3, 6],
            "output_router_logits": ROUTED["output_router_logits"],
            "n_shared_experts": [OUT, 1, 2],
            "moe_intermediate_size": [7, 20],
            "moe_shared_expert_intermediate_size": [7, 20],
            "moe_latent_size": [OUT, None, 8, 20],
            "moe_shared_expert_overlap": [OUT, True, False],
            "num_experts_per_tok": [OUT, 1, 2, 3],
            "routed_scaling_factor": [OUT, 1, 0.5, 2.5],
            "n_group": [OUT, 1, 2],
            "topk_group": [OUT, 1],
            "norm_topk_prob": [OUT, True, False],
            "num_nextn_predict_layers": [OUT, 0, 1],
            "mtp_layers_block_type": [OUT, None, ["full_attention", "moe"]],
            "num_logits_to_keep": [OUT, 1],
            "use_bias": [OUT, True, False],
            "layer_norm_epsilon": EPS,
            "residual_in_fp32": [OUT, True, False],
            "rescale_prenorm_residual": [OUT, True, False],
            "tie_word_embeddings": TIED,
            "max_position_embeddings": [32, 5],
            **TOKENS,
        },
        [LM, LM, BASE],
    ),
    "mixtral": (
        LLAMA | {"num_local_experts": 4},
        {name: values for name, values in SEED_LLAMA.items() if name != "attention_bias"}
        | ROUTED
        | {"sliding_window": [OUT, None, 3], "router_jitter_noise": DROPOUT, "num_experts_per_tok": [OUT, 1, 2, 3]}
        | {"num_local_experts": [3, 5], "hidden_act": [OUT, *ACTIVATIONS]},
        DECODER_HEADS,
    ),
    "phimoe": (
        LLAMA | {"num_local_experts": 4},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | {"sliding_window": [OUT, None, 3], "num_experts_per_tok": [OUT, 1, 2, 3], "num_local_experts": [2, 5]}
        | {
            "router_jitter_noise": [OUT, 0.0, 0.1, 0.5],
            "input_jitter_noise": DROPOUT,
            "hidden_act": [OUT, *ACTIVATIONS],
        }
        | {"lm_head_bias": [OUT, True, False], "num_key_value_heads": [1, 2]}
        | {f"rope_{name}": [OUT, *PHIMOE_ROPES] for name in ("parameters", "scaling")},
        [LM, LM, LM, BASE, TEXT_CLASSES],
    ),
    "ernie4_5_moe": (
        LLAMA
        | {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 10, "num_hidden_layers": 3}
        | {"moe_num_shared_experts": 1},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "token_classification_bias")}
        | ROUTED
        | {"hidden_act": [OUT, *ACTIVATIONS], "use_bias": [OUT, None, True, False], "intermediate_size": [7, 20, 40]}
        | {"moe_num_experts": [3, 5], "moe_k": [1, 3], "moe_intermediate_size": [7, 40]}
        | {"moe_num_shared_experts": [OUT, 0, 1, 2], "moe_layer_start_index": [OUT, 0, 1, 2, 5]}
        | {"moe_layer_end_index": [OUT, -1, 0, 1, 7], "moe_layer_interval": [OUT, 1, 2, 3]}
        | {"moe_norm_min": [OUT, 1e-12, 1e-10], "head_dim": [OUT, 6, 12]},
        [LM, LM, BASE],
    ),
    "minimax_m2": (
        LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "token_classification_bias")}
        | ROUTED
        | CUT_ROPE
        | {"num_experts_per_tok": [1, 3], "num_local_experts": [3, 5], "hidden_act": [OUT, *ACTIVATIONS]}
        | {"num_key_value_heads": [1, 2], "router_jitter_noise": DROPOUT, "rotary_dim": [OUT, None, 2, 4]}
        | {"head_dim": [8, 12]},
        [LM, LM, BASE],
    ),
    "qwen3_moe": (
        LLAMA
        | {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"num_hidden_layers": 3},
        SEED_LLAMA
        | ROUTED
        | {name: WINDOWS[name] for name in ("use_sliding_window", "sliding_window", "max_window_layers")}
        | {
            **QWEN_MOE,
            "head_dim": [6, 12, OUT],
            "num_local_experts": [OUT, 3],
        },
        DECODER_HEADS,
    ),
    "glm4_moe": (
        DEEPSEEK,
        DEEPSEEK_MOE
        | CUT_ROPE
        | {"head_dim": [OUT, 6, 12], "use_qk_norm": [OUT, True, False], "num_mtp_layers": [OUT, 0, 2]},
        [LM, LM, BASE],
    ),
    "sarvam_moe": (
        DEEPSEEK | {"head_dim": 8},
        DEEPSEEK_MOE
        | CUT_ROPE
        | {"rope_theta": [OUT, 100.0, 500.0], "head_dim": [6, 12], "use_qk_norm": [OUT, True, False]}
        | {"num_mtp_layers": [OUT, 0, 2], "pad_token_id": [OUT, 0, 2, 12]},
        [LM, LM, BASE],
    ),
    "hy_v3": (
        {name: size for name, size in DEEPSEEK.items() if name in LLAMA or name.endswith(("_per_tok", "te_size"))}
        | {"num_experts": 6, "num_shared_experts": 1, "head_dim": 8},
        {
            name: DEEPSEEK_MOE[name]
            for name in DEEPSEEK_MOE
            if name in SEED_LLAMA or name in ROUTED or name.startswith(("moe_", "num_experts_"))
        }
        | {"num_experts": [4, 12], "num_shared_experts": [OUT, 1, 2, 3], "num_key_value_heads": [1, 2]}
        | {"head_dim": [6, 12], "router_scaling_factor": [OUT, 1, 0.5, 2.5], "mlp_bias": [OUT, False, False, True]}
        | {"enable_moe_fp32_combine": [OUT, True, False], "mlp_layer_types": MLP_KINDS},
        [LM, LM, BASE],
    ),
    "mellum": (
        LLAMA
        | {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3},
        SEED_LLAMA
        | ROUTED
        | {name: PATTERN[name] for name in ("sliding_window", "layer_types")}
        | {
            **{name: QWEN_MOE[name] for name in QWEN_MOE if not name.endswith(("_layers", "_step", "num_experts"))},
            "num_experts": [3, 5],
            "num_local_experts": [OUT, 3],
            "num_key_value_heads": [1, 2],
            "head_dim": [6, 12],
            "mlp_layer_types": MLP_KINDS,
            "num_mtp_layers": [OUT, None, 0, 1],
            "mtp_layer_types": [OUT, None],
            "mtp_mlp_layer_types": [OUT, None],
            "rope_parameters": [
                *(OUT, None),
                *(
                    {"full_attention": {"rope_theta": 90.0, **(rope or {})}, "sliding_attention": NEAR_ROPE}
                    for rope in ropes(4)
                ),
                *(
                    {"full_attention": NEAR_ROPE, "sliding_attention": {"rope_theta": 90.0, **rope}}
                    for rope in ropes(4)[4:]
                ),
            ],
        },
        [LM, LM, BASE],
    ),
    "sarvam_mla": (
        LATENT,
        LATENT_MOE
        | {"head_dim": [OUT, 8, 40], "rope_interleave": [OUT, None, True, False], "num_mtp_layers": [OUT, 0, 2]}
        | {"num_key_value_heads": [OUT, None, 2, 3], "q_lora_rank": [OUT, None, 4, 10], **NULL_NORMALISE}
        | {
            "rope_scaling": [
                *(OUT, *LATENT_ROPES, {"type": "deepseek_yarn", "mscale": 1.0, "mscale_all_dim": 1.0, **LONG}),
                {"rope_type": "deepseek_yarn", "type": "yarn", "rope_theta": 300.0, **LONG},
            ]
        },
        [LM, LM, BASE],
    ),
    "deepseek_v3": (
        LATENT,
        LATENT_MOE
        | {
            "head_dim": [OUT, 8],
            "rope_interleave": [OUT, None, True, False],
            "num_mtp_layers": [OUT, 0, 2],
            "token_classification_bias": [OUT, True, False],
            **NULL_NORMALISE,
        },
        [LM, LM, LM, BASE, BASE, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "deepseek_v2": (
        LATENT,
        LATENT_MOE
        | {
            "head_dim": [OUT, None, 6],
            "num_key_value_heads": [OUT, None, 2, 3],
            **NULL_NORMALISE,
            "topk_method": [OUT, "greedy", "group_limited_greedy", "group_limited_greedy"],
            "mlp_bias": [OUT, True, False],
        },
        [LM, LM, LM, BASE, BASE, TEXT_CLASSES],
    ),
    "minicpm3": (
        DENSE_LATENT,
        DENSE_LATENT_FIELDS
        | {"mlp_bias": [OUT, True, False], "head_dim": [OUT, None, 6], "v_head_dim": [OUT, None, 3, 8, 12]}
        | {"scale_emb": [OUT, 1, 3, 12.5], "scale_depth": [OUT, None, 1, 2.3], "dim_model_base": [OUT, None, 4, 16]},
        [LM, LM, BASE, TEXT_CLASSES],
    ),
    "youtu": (
        DENSE_LATENT,
        DENSE_LATENT_FIELDS
        | {"rope_interleave": [OUT, None, True, False], "head_dim": [OUT, 8]}
        | {"embedding_initializer_range": [OUT, 0.1]},
        [LM, LM, BASE],
    ),
    "glm4_moe_lite": (
        {name: size for name, size in LATENT.items() if name != "first_k_dense_replace"},
        {name: values for name, values in LATENT_MOE.items() if name != "first_k_dense_replace"}
        | {
            "rope_interleave": [OUT, True, False],
            "mlp_layer_types": [
                *(
                    OUT,
                    None,
                    ["sparse", "sparse"],
                    ["dense", "dense"],
                    ["sparse", "dense"],
                    ["dense", "sparse", "dense"],
                )
            ],
        },
        [LM, LM, BASE],
    ),
    "dots1": (
        DEEPSEEK,
        DEEPSEEK_MOE
        | NULL_NORMALISE
        | {name: WINDOWS[name] for name in ("sliding_window", "max_window_layers", "layer_types")},
        [LM, LM, BASE],
    ),
    "qwen2_moe": (
        LLAMA
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"num_hidden_layers": 3, "shared_expert_intermediate_size": 14},
        {name: values for name, values in SEED_LLAMA.items() if name != "attention_bias"}
        | ROUTED
        | WINDOWS
        | QWEN_MOE
        | {
            "num_key_value_heads": [OUT, 1, 2],
            "qkv_bias": [OUT, True, False],
            "shared_expert_intermediate_size": [7, 40],
            "layer_types": [
                *(OUT, None, ["full_attention", "sliding_attention", "full_attention"], ["sliding_attention"] * 3)
            ],
        },
        DECODER_HEADS,
    ),
    "qwen3_next": (
        HYBRID
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"shared_expert_intermediate_size": 14},
        SEED_LLAMA | ROUTED | QWEN_MOE | HYBRID_FIELDS | {"shared_expert_intermediate_size": [7, 40]},
        DECODER_HEADS,
    ),
    "qwen3_5_text": (
        HYBRID,
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | HYBRID_FIELDS
        | {
            "rope_parameters": [
                *HYBRID_FIELDS["rope_parameters"],
                {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 1, 0], "mrope_interleaved": True},
            ]
        },
        [LM, LM, BASE, TEXT_CLASSES],
    ),
    "qwen3_5_moe_text": (
        {name: size for name, size in HYBRID.items() if name != "intermediate_size"}
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
        | {"shared_expert_intermediate_size": 14},
        {
            name: values
            for name, values in SEED_LLAMA.items()
            if name not in ("token_classification_bias", "intermediate_size")
        }
        | ROUTED
        | HYBRID_FIELDS
        | {"shared_expert_intermediate_size": [7, 40], "moe_intermediate_size": [7, 40]}
        | {"num_experts": [3, 5], "num_experts_per_tok": [1, 3]},
        [LM, LM, BASE],
    ),
    "olmo_hybrid": (
        {name: size for name, size in HYBRID.items() if name != "head_dim"} | {"pad_token_id": None},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | PADDED
        | {name: values for name, values in HYBRID_FIELDS.items() if name not in CUT_ROPE and name != "head_dim"}
        | {"linear_allow_neg_eigval": [OUT, True, False], "num_key_value_heads": [OUT, None, 1, 2]}
        | {name: [None, *HYBRID_FIELDS[name]] for name in ("linear_num_key_heads", "linear_num_value_heads")}
        | {name: [None, *HYBRID_FIELDS[name]] for name in ("linear_key_head_dim", "linear_value_head_dim")}
        | {"linear_a_log_min": [0.5], "linear_a_log_max": [8.0], "linear_dt_min": [0.01], "linear_dt_max": [0.5]}
        | {"linear_dt_init_floor": [0.01], "rope_theta": [OUT, None, 100.0]}
        | {"rope_parameters": [OUT, *ropes(4), {"rope_theta": None}, {"rope_type": "default", "rope_theta": None}]},
        [LM, LM, BASE],
    ),
    "olmoe": (
        LLAMA | {"num_experts": 4, "num_experts_per_tok": 2},
        {name: values for name, values in SEED_LLAMA.items() if name not in ("head_dim", "token_classification_bias")}
        | ROUTED
        | {
            "pad_token_id": [OUT, 0, 2, 12],
            "hidden_act": [OUT, *ACTIVATIONS],
            "num_experts": [3, 5],
            "num_experts_per_tok": [1, 3],
            "norm_topk_prob": [OUT, True, False],
            "clip_qkv": [OUT, None, 0.5, 2.0],
        },
        [LM, LM, BASE],
    ),
    "flex_olmo": (
        LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": None},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | ROUTED
        | PADDED
        | {"hidden_act": [OUT, *ACTIVATIONS], "num_experts": [3, 5], "num_experts_per_tok": [1, 3]}
        | {"norm_topk_prob": [OUT, True, False]},
        [LM, LM, BASE],
    ),
    "gpt_oss": (
        LLAMA
        | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 1.0, "sliding_window": 3}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        SEED_LLAMA
        | ROUTED
        | {
            "head_dim": [None, 6, 12],
            "hidden_act": [OUT, *ACTIVATIONS],
            "num_local_experts": [3, 5],
            "num_experts_per_tok": [1, 3],
            "sliding_window": [OUT, None, 5],
            "layer_types": WINDOWS["layer_types"],
            "swiglu_alpha": [OUT, 1.0, 2.5, -0.5, 0.0],
            "swiglu_limit": [OUT, 0.3, 3.0],
        },
        DECODER_HEADS[:-1],
    ),
    "olmo2": (LLAMA, {**SEED_LLAMA, "pad_token_id": [OUT, 0, 2, 12]}, DECODER_HEADS[:-2]),
    "starcoder2": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "rms_norm_eps")}
        | {"hidden_act": [OUT, *ACTIVATIONS], "norm_epsilon": EPS, "use_bias": [OUT, True, False]}
        | {"residual_dropout": DROPOUT, "embedding_dropout": DROPOUT, "sliding_window": [OUT, None, 3]},
        DECODER_HEADS[:-1],
    ),
    "olmo": (
        LLAMA,
        SEED_LLAMA | {"pad_token_id": [OUT, 0, 2, 12], "clip_qkv": [OUT, None, 0.5, 2.0]},
        DECODER_HEADS[:-2],
    ),
    **dict.fromkeys(
        ("glm", "glm4"),
        (
            LLAMA | {"head_dim": 8, "pad_token_id": None},
            SEED_LLAMA | PADDED | CUT_ROPE | {"head_dim": [6, 12, OUT]},
            DECODER_HEADS[:-1],
        ),
    ),
    "opt": (
        {name: size for name, size in SMALL.items() if name != "intermediate_size"}
        | {"vocab_size": WORDS, "ffn_dim": 12, "max_position_embeddings": 32},
        {
            "ffn_dim": [8, 20],
            "num_attention_heads": [1, 4],
            "max_position_embeddings": [9, 40],
            "do_layer_norm_before": [OUT, True, False],
            "_remove_final_layer_norm": [OUT, False, True],
            "word_embed_proj_dim": [OUT, None, 8, 16, 24],
            "dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "layerdrop": [0.0],
            "activation_function": [OUT, *ACTIVATIONS],
            "init_std": [0.02],
            "enable_bias": [OUT, True, False],
            "layer_norm_elementwise_affine": [OUT, True, False],
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        [LM, LM, LM, BASE, BASE, TEXT_CLASSES, TEXT_CLASSES, SPANS],
    ),
    "gpt_neo": (
        {"vocab_size": WORDS, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 32}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 3},
        {
            "attention_types": [[[["local"], 2]], [[["local", "global"], 1]], [[["global"], 1], [["local"], 1]]],
            "attention_layers": [OUT, ["local", "global"], ["global", "global"]],
            "window_size": [OUT, 1, 4],
            "num_heads": [1, 4],
            "max_position_embeddings": [9, 40],
            "intermediate_size": [OUT, None, 12],
            "activation_function": [OUT, *ACTIVATIONS],
            "resid_dropout": DROPOUT,
            "embed_dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "classifier_dropout": DROPOUT,
            "layer_norm_epsilon": EPS,
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        DECODER_HEADS,
    ),
    "phi": (
        LLAMA,
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "rms_norm_eps")}
        | {"hidden_act": [OUT, *ACTIVATIONS], "layer_norm_eps": EPS, "qk_layernorm": [OUT, True, False]}
        | {"resid_pdrop": DROPOUT, "embd_pdrop": DROPOUT, "head_dim": [OUT, 4, 12]}
        | CUT_ROPE,
        DECODER_HEADS[:-1],
    ),
    "stablelm": (
        LLAMA | {"hidden_size": 32},
        {name: SEED_LLAMA[name] for name in SEED_LLAMA if name not in ("attention_bias", "rms_norm_eps")}
        | {"layer_norm_eps": EPS, "hidden_dropout": DROPOUT, "head_dim": [OUT, None, 16]}
        | {name: [OUT, True, False] for name in ("qk_layernorm", "use_qkv_bias", "use_parallel_residual")}
        | CUT_ROPE,
        DECODER_HEADS[:-1],
    ),
    "falcon": (
        {name: size for name, size in SMALL.items() if name != "intermediate_size"}
        | {"vocab_size": WORDS, "hidden_size": 24, "num_attention_heads": 6, "max_position_embeddings": 32},
        {
            "hidden_size": [24, 48],
            "n_embed": [OUT, 48],
            # some slopes of 12 heads are no bfloat16
            "num_attention_heads": [4, 12],
            "num_ln_in_parallel_attn": [OUT, None, 1, 2],
            "num_kv_heads": [OUT, None, 2, 6],
            "alibi": [OUT, None, False, *[True] * 5],
            "new_decoder_architecture": [OUT, True, True, False],
            "multi_query": [OUT, True, False, False],
            "parallel_attn": [OUT, True, False],
            "bias": [OUT, True, False],
            "ffn_hidden_size": [OUT, None, 12],
            "activation": [OUT, *ACTIVATIONS],
            "layer_norm_epsilon": EPS,
            "hidden_dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "tie_word_embeddings": TIED,
            **ROPE,
            **{"rope_parameters": [OUT, *ropes(2)], "rope_scaling": [OUT, *ropes(2)]},
            **TOKENS,
            **LABELS,
        },
        DECODER_HEADS,
    ),
    "gpt2": (
        GPT,
        GPT_FIELDS
        | {
            "n_positions": [9, 40],
            "n_head": [1, 4],
            "scale_attn_weights": [OUT, True, False],
            "scale_attn_by_inverse_layer_idx": [OUT, True, False],
            "reorder_and_upcast_attn": [OUT, True, False],
            "add_cross_attention": [OUT, False, True],
            "summary_type": ["first"],
            "summary_use_proj": [False],
            "summary_activation": [None],
            "summary_proj_to_labels": [False],
            "summary_first_dropout": DROPOUT,
        },
        DECODER_HEADS,
    ),
    "gpt_neox": (
        {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"},
        {
            "hidden_act": [OUT, *ACTIVATIONS],
            "attention_dropout": DROPOUT,
            "hidden_dropout": DROPOUT,
            "classifier_dropout": DROPOUT,
            "layer_norm_eps": EPS,
            "tie_word_embeddings": TIED,
            "use_parallel_residual": [OUT, True, False],
            "attention_bias": [OUT, True, False],
            "is_decoder": [OUT, True],
            "rotary_pct": [OUT, 0.0, 0.375, 0.5, 0.9, 1.0],
            "head_dim": [OUT, None, 4, 12, 16],
            "rotary_emb_base": [OUT, 100, 500],
            **ROPE,
            **{"rope_parameters": [OUT, *ropes(1)], "rope_scaling": [OUT, *ropes(1)]},
            **TOKENS,
            **LABELS,
        },
        DECODER_HEADS,
    ),
    "gptj": (
        GPT | {"rotary_dim": 4},
        GPT_FIELDS | {"rotary_dim": [2, 3, 6, 8], "n_head": [1, 4]},
        [LM, LM, BASE, TEXT_CLASSES, SPANS],
    ),
    "gpt_bigcode": (
        GPT,
        GPT_FIELDS
        | {name: [OUT, True, False] for name in ("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")}
        | {
            "n_positions": [9, 40],
            "n_head": [1, 4],
            "multi_query": [OUT, True, False],
            "scale_attn_weights": [OUT, True, False],
            "add_cross_attention": [OUT, False, True],
        },
        [LM, LM, BASE, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "codegen": (
        GPT | {"rotary_dim": 4},
        {name: values for name, values in GPT_FIELDS.items() if name not in LABELS}
        | {"rotary_dim": [2, 3, 6, 8], "n_head": [1, 4], "n_ctx": [OUT, 16], "n_embd": [OUT, 24, 12]},
        [LM, LM, BASE],
    ),
    "bloom": (
        {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2},
        {
            "n_head": [4, 8, OUT],
            "n_layer": [1, OUT],
            "hidden_size": [24, OUT],
            "n_embed": [OUT, 24],
            "layer_norm_epsilon": EPS,
            "apply_residual_connection_post_layernorm": [OUT, False, True],
            "hidden_dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "pretraining_tp": [1, 2, 3],
            "slow_but_exact": [OUT, True, False],
            "seq_length": [OUT, 64],
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        DECODER_HEADS,
    ),
    "mamba": (MAMBA, MAMBA_FIELDS, [LM, BASE]),
    "falcon_mamba": (MAMBA, MAMBA_FIELDS | {"mixer_rms_eps": EPS, "use_falcon_mambapy": [OUT, False]}, [LM, BASE]),
    "mamba2": (
        {
            "vocab_size": WORDS,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 4,
            "state_size": 6,
            "n_groups": 2,
        },
        {
            "n_groups": [1, 2, 4, 3],
            "head_dim": [4, 4, 4, 5],
            "expand": [OUT, 2],
            "state_size": [3, 6],
            "conv_kernel": [OUT, 1, 2, 5],
            "chunk_size": [OUT, 2, 4],
            "use_bias": [OUT, True, False],
            "use_conv_bias": [OUT, True, False],
            "hidden_act": [OUT, *ACTIVATIONS],
            "layer_norm_epsilon": EPS,
            "residual_in_fp32": [OUT, True, False],
            "rescale_prenorm_residual": [OUT, True, False],
            "time_step_rank": [OUT, "auto", 3],
            "time_step_min": [OUT, 0.01],
            "time_step_max": [OUT, 0.5],
            "time_step_floor": [OUT, 0.01],
            "time_step_limit": [
                OUT,
                [0.0, float("inf")],
                [0.3, 0.9],
                [0.0, 0.5],
                [0.4, float("inf")],
                [-1.0, 0.5],
                [0.5, 0.3],
            ],
            "tie_word_embeddings": TIED,
            **TOKENS,
        },
        [LM, BASE],
    ),
    "mpt": (
        {"vocab_size": WORDS, "d_model": 24, "n_layers": 2, "n_heads": 2, "max_seq_len": 32},
        {
            "n_heads": [3, 6, 4],
            "expansion_ratio": [OUT, 4, 2],
            "resid_pdrop": DROPOUT,
            "emb_pdrop": DROPOUT,
            "layer_norm_epsilon": EPS,
            "learned_pos_emb": [OUT, True, False],
            "attn_config": [
                OUT,
                None,
                {},
                {"alibi": True, "alibi_bias_max": 8},
                {"softmax_scale": 0.2},
                {"attn_type": "multihead_attention", "attn_impl": "triton", "attn_pdrop": 0},
                {"attn_uses_sequence_id": False, "prefix_lm": False, "qk_ln": False, "clip_qkv": None},
                {"clip_qkv": 0.5},
                {"clip_qkv": 0.0},
                {"clip_qkv": 0.5, "softmax_scale": 0.2},
                {"qk_ln": True},
                {"prefix_lm": True},
                {"alibi": False},
                {"alibi_bias_max": 4},
            ],
            "init_device": ["cpu", "meta"],
            "logit_scale": [OUT, None, 0.5],
            "no_bias": [OUT, True, False],
            "embedding_fraction": [1.0, 0.5],
            "norm_type": [OUT, "low_precision_layernorm"],
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        DECODER_HEADS,
    ),
    "hunyuan_v1_moe": (
        LLAMA | {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
        {name: values for name, values in SEED_LLAMA.items() if name != "token_classification_bias"}
        | {"hidden_act": [OUT, *ACTIVATIONS], "head_dim": [OUT, 6, 12], "output_router_logits": [OUT, True, False]}
        | {"eod_token_id": [OUT, None, 3], "sep_token_id": [OUT, None, 4], "pretraining_tp": [1, 2]}
        | {"num_experts": [3, 5], "moe_topk": [OUT, 1, 3, [2, 2]]}
        | {f"rope_{name}": [OUT, *HUNYUAN_ROPES] for name in ("parameters", "scaling")},
        [LM, LM, LM, BASE, TEXT_CLASSES],
    ),
    "dbrx": (
        {"vocab_size": WORDS, "d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 32}
        | {"attn_config": {"rope_theta": 1e4, "clip_qkv": 1.0}, "ffn_config": {"ffn_hidden_size": 10}},
        {
            "attn_config": [
                {"rope_theta": 5e5, "clip_qkv": 0.5, "kv_n_heads": 2},
                {"rope_theta": 1e4, "clip_qkv": 2, "attn_pdrop": 0.1},
                {"rope_theta": 1e4, "clip_qkv": 8, "unheard_of": 3},
            ],
            "ffn_config": [
                {"ffn_hidden_size": 7, "moe_num_experts": 5, "moe_top_k": 2},
                {"ffn_hidden_size": 20, "moe_top_k": 3, "moe_normalize_expert_weights": None, "moe_loss_weight": 0.1},
                {"ffn_hidden_size": 10, "ffn_act_fn": {"name": "gelu"}, "moe_normalize_expert_weights": 1},
                {"ffn_hidden_size": 10, "ffn_act_fn": {"name": "relu2"}, "moe_jitter_eps": 0.1, "moe_top_k": 4},
            ],
            "d_model": [24, 32],
            "n_heads": [2, 4],
            "max_seq_len": [OUT, 64, 5],
            "resid_pdrop": DROPOUT,
            "emb_pdrop": DROPOUT,
            "output_router_logits": [OUT, True, False],
            "tie_word_embeddings": [OUT, False],
            **{name: values for name, values in ROPE.items() if name != "max_position_embeddings"},
            **TOKENS,
        },
        [LM, LM, BASE],
    ),
    "biogpt": (
        {"vocab_size": WORDS, **SMALL, "max_position_embeddings": 32},
        {
            "hidden_act": [OUT, *ACTIVATIONS],
            "num_attention_heads": [1, 4],
            "intermediate_size": [8, 20],
            "max_position_embeddings": [9, 40],
            "hidden_dropout_prob": DROPOUT,
            "attention_probs_dropout_prob": DROPOUT,
            "activation_dropout": DROPOUT,
            "layerdrop": [0.0],
            "layer_norm_eps": EPS,
            "scale_embedding": [OUT, True, False],
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        [LM, LM, LM, BASE, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "xglm": (
        {"vocab_size": WORDS, "d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 12}
        | {"max_position_embeddings": 32},
        {
            "activation_function": [OUT, *ACTIVATIONS],
            "attention_heads": [1, 4],
            "ffn_dim": [8, 20],
            "d_model": [24, 12],
            "max_position_embeddings": [4, 40],
            "dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "activation_dropout": DROPOUT,
            "layerdrop": [0.0],
            "init_std": [0.02],
            "decoder_start_token_id": [OUT, 0],
            "scale_embedding": [OUT, True, False],
            "add_cross_attention": [OUT, True, False],
            "tie_word_embeddings": TIED,
            **TOKENS,
            # zeros at the position of its number
            "pad_token_id": [OUT, OUT, None, 0, 0, 1, 1, 2],
        },
        [LM, LM, BASE],
    ),
    "openai_gpt": (
        GPT,
        {
            "n_positions": [9, 40],
            "n_head": [1, 4],
            "afn": [OUT, "gelu", "relu", "silu", "swish"],
            "resid_pdrop": DROPOUT,
            "embd_pdrop": DROPOUT,
            "attn_pdrop": DROPOUT,
            "layer_norm_epsilon": EPS,
            "summary_type": ["first"],
            "summary_use_proj": [False],
            "summary_activation": [None],
            "summary_proj_to_labels": [False],
            "summary_first_dropout": DROPOUT,
            "tie_word_embeddings": TIED,
            **TOKENS,
            **LABELS,
        },
        [LM, LM, BASE, TEXT_CLASSES],
    ),
    "bert": (BERT, BERT_FIELDS, ENCODER_HEADS),
    "roberta": (BERT | {"pad_token_id": 1}, BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2, 12]}, ENCODER_HEADS),
    "xlm_roberta": (BERT | {"pad_token_id": 1}, BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2, 12]}, ENCODER_HEADS),
    "camembert": (BERT | {"pad_token_id": 1}, BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2, 12]}, ENCODER_HEADS),
    **dict.fromkeys(
        ("data2vec_text", "xlm_roberta_xl"),
        (BERT | {"pad_token_id": 1}, BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2, 12]}, ENCODER_HEADS),
    ),
    "megatron_bert": (BERT, BERT_FIELDS, ENCODER_HEADS),
    "ernie": (
        BERT,
        BERT_FIELDS | {"use_task_id": [OUT, True, True, False], "task_type_vocab_size": [OUT, 1, 5]},
        ENCODER_HEADS,
    ),
    "distilbert": (
        {
            "vocab_size": WORDS,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
            "max_position_embeddings": 32,
        },
        {
            "activation": [OUT, *ACTIVATIONS],
            "n_heads": [1, 4],
            "hidden_dim": [8, 12],
            "n_layers": [1, 3],
            "max_position_embeddings": [16, 40],
            "sinusoidal_pos_embds": [OUT, True, False],
            "tie_word_embeddings": TIED,
            "layer_norm_eps": EPS,
            "hidden_act": ["relu"],
            **{key: [OUT, *values] for key, values in {"type_vocab_size": [0, 3], "is_decoder": [True]}.items()},
            **dict.fromkeys(("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout"), DROPOUT),
            **TOKENS,
            **LABELS,
        },
        ENCODER_HEADS,
    ),
    "electra": (
        BERT | {"embedding_size": 8},
        {key: BERT_FIELDS[key] for key in BERT_FIELDS}
        | {
            "embedding_size": [OUT, 8, 16, 24],
            "summary_type": [OUT, "last"],
            "summary_use_proj": [OUT, False],
            "summary_activation": [OUT, "relu"],
            "summary_last_dropout": DROPOUT,
        },
        [*ENCODER_HEADS, REPLACED],
    ),
    "esm": (
        BERT | {"pad_token_id": 1, "mask_token_id": 12, "position_embedding_type": "rotary"},
        {
            **{key: values for key, values in BERT_FIELDS.items() if key not in ("hidden_act", "type_vocab_size")},
            "hidden_act": ["relu"],
            "type_vocab_size": [OUT, 0, 3],
            "position_embedding_type": [OUT, "absolute", "rotary", "relative_key"],
            "pad_token_id": [1, 0, 12],
            "mask_token_id": [OUT, None, 0, 5, 12, 40],
            "token_dropout": [OUT, None, True, True, True, False],
            "emb_layer_norm_before": [OUT, None, True, False],
            "rope_theta": [OUT, 100.0, 5e5],
            "rope_parameters": [OUT, {"rope_type": "default", "rope_theta": 10.0}],
            "head_dim": [OUT, 8, 4],
            "is_folding_model": [OUT, None, False],
            "esmfold_config": [OUT, None],
            "vocab_list": [OUT, None],
            "tie_word_embeddings": TIED,
        },
        [MASKED, MASKED, BASE, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "roberta_prelayernorm": (
        BERT | {"pad_token_id": 1},
        BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2, 12]},
        ENCODER_HEADS,
    ),
    "mpnet": (
        BERT,
        {key: BERT_FIELDS[key] for key in BERT_FIELDS}
        | {
            "relative_attention_num_buckets": [OUT, 32, 40, 20],
            "pad_token_id": [OUT, 0, 1, 2, 12],
            "max_distance": [OUT, 16],
        },
        ENCODER_HEADS,
    ),
    "nomic_bert": (
        BERT,
        {key: BERT_FIELDS[key] for key in BERT_FIELDS}
        | {
            "head_dim": [OUT, None, 4, 8, 6],
            "rope_theta": [OUT, 100.0],
            **{key: values for key, values in ROPE.items() if key != "head_dim"},
        },
        [MASKED, MASKED, BASE, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "eurobert": (
        LLAMA | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        {
            "hidden_act": [OUT, *ACTIVATIONS],
            "num_key_value_heads": [OUT, None, 1, 2],
            "head_dim": [OUT, None, 4, 8, 6],
            "rms_norm_eps": EPS,
            "attention_bias": [OUT, True, False],
            "mlp_bias": [OUT, True, False],
            "tie_word_embeddings": TIED,
            "classifier_pooling": [OUT, "bos", "mean", "late"],
            "attention_dropout": DROPOUT,
            "pretraining_tp": [1, 2],
            "mask_token_id": [OUT, 5],
            **{key: values for key, values in ROPE.items() if key != "head_dim"},
            **TOKENS,
            **LABELS,
        },
        [MASKED, MASKED, BASE, TEXT_CLASSES, TEXT_CLASSES, TOKEN_CLASSES],
    ),
    "albert": (
        BERT | {"embedding_size": 8},
        {
            "hidden_act": [OUT, *ACTIVATIONS],
            "hidden_dropout_prob": DROPOUT,
            "attention_probs_dropout_prob": DROPOUT,
            "classifier_dropout_prob": DROPOUT,
            "embedding_size": [8, 12, 24],
            "num_hidden_layers": [1, 2, 3, 5],
            "num_hidden_groups": [OUT, 1, 1, 2, 3],
            "inner_group_num": [OUT, 1, 2, 3],
            "layer_norm_eps": EPS,
            "max_position_embeddings": [16, 40],
            "num_attention_heads": [1, 4],
            "tie_word_embeddings": TIED,
            "type_vocab_size": [OUT, 1, 3],
            **TOKENS,
            **LABELS,
        },
        ENCODER_HEADS,
    ),
    "roformer": (
        BERT,
        {key: BERT_FIELDS[key] for key in BERT_FIELDS if key not in ("position_embedding_type", "classifier_dropout")}
        | {"embedding_size": [OUT, None, 8, 16, 24], "rotary_value": [OUT, True, False]},
        ENCODER_HEADS,
    ),
    "modernbert": (
        BERT | dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"]),
        {
            **MODERNBERT_FIELDS,
            "classifier_pooling": [OUT, "cls", "mean"],
            "deterministic_flash_attn": [False],
            "sparse_prediction": [False],
            "sparse_pred_ignore_index": [-100],
            **TOKENS,
        },
        ENCODER_HEADS,
    ),
    "modernbert_decoder": (
        # transformers has no model without these tokens
        BERT
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "cls_token_id": 1, "sep_token_id": 2}
        | {"layer_types": ["full_attention", "sliding_attention"]},
        {
            **MODERNBERT_FIELDS,
            "pad_token_id": [0, 2, 12, -1, 40],
            "eos_token_id": TOKENS["eos_token_id"],
        },
        [LM, LM, LM, BASE, BASE, TEXT_CLASSES, TEXT_CLASSES],
    ),
    "deberta_v2": (
        BERT
        | {"relative_attention": True, "share_att_key": True, "position_biased_input": False, "position_buckets": 4}
        | {"pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 12},
        {
            **{key: BERT_FIELDS[key] for key in BERT_FIELDS if key not in ("position_embedding_type",)},
            "type_vocab_size": [OUT, 0, 2],
            "max_relative_positions": [OUT, -1, 1, 2, 4, 8, 12],
            "pos_att_type": [
                *(OUT, None, "", [], "p2c|c2p", "C2P | P2C", "c2p", ["p2c"], ["c2p", "p2c"], "p2p|c2p", ["C2P"]),
            ],
            "norm_rel_ebd": [OUT, "none", "layer_norm", "LAYER_NORM"],
            "position_buckets": [OUT, -1, 2, 5, 6, 8, 32],
            "relative_attention": [OUT, True, False],
            "position_biased_input": [OUT, True, False],
            "share_att_key": [OUT, True, False],
            "conv_kernel_size": [OUT, 0, 1, 3, 4, 5],
            "conv_groups": [OUT, 1, 2],
            "conv_act": [OUT, *ACTIVATIONS],
            "embedding_size": [OUT, 8, 16, 24],
            "attention_head_size": [OUT, 4, 8],
            "pooler_dropout": DROPOUT,
            "pooler_hidden_act": [OUT, *ACTIVATIONS],
            "pooler_hidden_size": [OUT, 8, 16],
            "legacy": [OUT, True, False],
            "max_position_embeddings": [12, 16],
        },
        ENCODER_HEADS,
    ),
    "vit": (
        VISION,
        VISION_FIELDS
        | {"encoder_stride": [4], "pooler_output_size": [OUT, None, 8, 16], "pooler_act": [OUT, *ACTIVATIONS]},
        [CLASSES, BASE],
    ),
    "dinov2": (VISION, DINO_FIELDS | {"use_mask_token": [OUT, True, False]}, [CLASSES, BASE]),
    "dinov2_with_registers": (VISION, DINO_FIELDS | {"num_register_tokens": [OUT, 0, 1, 2]}, [CLASSES, BASE]),
    "dinov3_vit": (
        VISION,
        {
            **{key: VISION_FIELDS[key] for key in VISION_FIELDS if key not in NO_DINOV3},
            "attention_dropout": DROPOUT,
            **{f"{part}_bias": [OUT, True, False] for part in ("query", "key", "value", "proj", "mlp")},
            "rope_theta": [OUT, 10.0, 1000.0],
            "layerscale_value": [OUT, 0.5],
            "use_gated_mlp": [OUT, True, False],
            "num_register_tokens": [OUT, 0, 1, 2],
            "pos_embed_shift": [OUT, None, 0.5],
            "pos_embed_jitter": [OUT, None, 1.5],
            "pos_embed_rescale": [OUT, None, 1.5],
            "drop_path_rate": DROPOUT,
            "apply_layernorm": [OUT, True, False],
            "reshape_hidden_states": [OUT, False],
            "out_features": [OUT, ["stage1"]],
            "out_indices": [OUT, [1]],
        },
        [BASE],
    ),
    **dict.fromkeys(("t5", "mt5", "umt5"), (T5_SIZES, T5_FIELDS, [PAIRS])),
    **dict.fromkeys(("t5_encoder", "mt5_encoder", "umt5_encoder"), (T5_SIZES, T5_FIELDS, [TEXTS])),
    "marian": (MARIAN, MARIAN_FIELDS, [PAIRS]),
    **dict.fromkeys(("bart", "mbart", "pegasus", "plbart"), (MARIAN, BART_FIELDS, [PAIRS])),
    "blenderbot": (MARIAN, BART_FIELDS | {"encoder_no_repeat_ngram_size": [OUT, 0, 2]}, [PAIRS]),
    "m2m_100": (
        MARIAN | {"pad_token_id": 1, "decoder_start_token_id": 2},
        BART_FIELDS
        | {"d_model": [24, 12], "pad_token_id": [OUT, None, 0, 2, -1], "decoder_start_token_id": [OUT, None, 0, 40]},
        [PAIRS],
    ),
}

# of layers without attention, beside those with the attention of the family
DELTA_MIXERS = [
    f"gated_deltanet:{options}variant.norm_eps={eps}"
    for options in (
        "",
        "heads=4,key_width=5,",
        "key_width=3,value_ratio=1,taps=1,",
        "key_width=4,variant.key_heads=1,",
        "heads=6,key_width=2,variant.key_heads=3,variant.value_width=5,",
        "negative_eigenvalues=true,key_width=5,",
        "key_width=5,gate=false,",
        "key_width=5,variant.activation=gelu,",
    )
    for eps in ("1e-05", "1e-06")
]
KIMI_MIXERS = [
    f"kimi_delta_attention:{options}norm_eps={eps}"
    for options in (
        "",
        "heads=3,head_dim=5,",
        "heads=2,head_dim=4,taps=1,",
        "head_dim=3,rank=2,",
        "head_dim=4,negative_eigenvalues=true,",
        "head_dim=4,activation=gelu,",
    )
    for eps in ("1e-05", "1e-06", "0.01")
]
# with the attention of the family between them
MAMBA2_MIXERS = [
    f"mamba2:{options}variant.norm_eps={eps}"
    for options in (
        "",
        "head_dim=4,states=5,",
        "expand=3,head_dim=8,states=3,groups=3,taps=1,",
        "expand=1,head_dim=2,states=4,groups=2,variant.bias=true,",
        "states=4,variant.convolution_bias=false,variant.least_step=0.1,variant.largest_step=0.5,",
        "states=4,variant.activation=gelu,",
    )
    for eps in ("1e-05", "1e-06")
]
MAMBA_MIXERS = [
    f"mamba{options}"
    for options in (
        "",
        ":states=3,taps=2,rank=2",
        ":expand=3,states=4,variant.bias=true,variant.convolution_bias=false",
        ":states=4,variant.inner=20,variant.activation=gelu",
        *(f":{norm}" for norm in ("variant.norm=plain", "variant.norm=plain,variant.norm_eps=0.01")),
        *(f":{norm}" for norm in ("variant.norm=scaled", "expand=1,variant.norm=scaled,variant.bias=true")),
    )
]
CONVOLUTION_MIXERS = [
    f"gated_short_convolution{options}" for options in ("", ":taps=1", ":taps=4", ":bias=true", ":taps=2,bias=true")
]
LATENT_MIXERS = [
    "latent",
    "latent:variant.rank=8",
    "latent:variant.rank=8,variant.content_width=6,variant.value_width=5,variant.bias=true",
    "latent:variant.rank=6,variant.query_rank=10,variant.content_width=4,variant.value_width=8",
    "latent:variant.rank=6,variant.content_width=4,variant.value_width=8,variant.scale=0.3",
    "latent:variant.rank=6,variant.content_width=4,variant.value_width=8,variant.norm_eps=0.001",
    "latent,softmax",
]
BASES = {
    "falcon": {"alibi": True, "num_attention_heads": 12},
    "gemma4_unified_text": {"num_kv_shared_layers": 1, "attention_k_eq_v": True},
    "gemma4_text": {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "attention_k_eq_v": True}
    | {"enable_moe_block": True, "num_global_key_value_heads": 2},
}
"""Fields of a second configuration of a family, whose shapes are drawn from too."""
NORMED_AFTER = "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_kind=nonparametric_rms"
NORMED_AFTER += ",variant.qk_norm_after=true"
WEIGHTED = {"scores": "sigmoid", "normalise": False, "weighted_inputs": True}
CHUNKED = {
    "mixer": [
        *(NORMED_AFTER, f"{NORMED_AFTER},variant.chunk=4", "softmax:variant.chunk=3", "softmax"),
        *(
            f"{NORMED_AFTER},variant.chunk=4,softmax",
            f"softmax:variant.chunk=3,{NORMED_AFTER}",
            "softmax:variant.chunk=3,softmax:variant.chunk=4",
        ),
        *(f"softmax:variant.bias=true,{NORMED_AFTER},variant.bias=true", "softmax:variant.chunk=3,softmax"),
    ],
    "scheme": [
        *("rope:layout=interleaved", "rope:theta=100.0,layout=interleaved,none", "rope", "none"),
        *("log_length:form=llama4,beta=0.3", "rope:layout=interleaved,log_length:form=llama4,trained_length=4"),
        *("none,log_length:form=llama4", "rope:layout=interleaved,log_length", "alibi"),
    ],
    "experts": [
        *(None, ExpertOptions(3), ExpertOptions(3, **WEIGHTED), ExpertOptions(3, **WEIGHTED, shared_hidden=12)),
        ExpertOptions(4, 1, **WEIGHTED, shared_hidden=12, dense_layers=(0,), dense_hidden=20),
        ExpertOptions(3, scores="sigmoid", normalise=False, shared_hidden=12),
    ],
}
"""What models with attention in chunks are drawn from in place of `SHAPES`."""
SHAPES = {
    "layers": [1, 2, 3],
    "heads": [1, 2, 4],
    "kv_heads": [None, 1, 2],
    "head_width": [None, 4, 6, 8],
    "sliding_windows": [(None,), (3,), (3, None), (None, 4)],
    "max_length": [16, 31],
    "norm": ["rms", "layer", "nonparametric", "nonparametric_rms"],
    "norm_eps": [None, 1e-6, 1e-2],
    "zero_centred_norm": [False, True],
    "norm_position": ["pre", "post", "res_post", "peri", "residual", "parallel", "shared"],
    "feedforward": [
        "gelu",
        "gelu_tanh",
        "quick_gelu",
        "relu",
        "silu",
        "tanh",
        "swiglu",
        "geglu",
        "geglu_tanh",
        "reglu",
    ],
    "hidden": [None, 12, 32, 64, 40],
    "experts": [
        None,
        ExpertOptions(3),
        ExpertOptions(4, 1, normalise=False),
        ExpertOptions(4, 3, dense_layers=(0,)),
        ExpertOptions(4, 2, normalise=False, dense_layers=(1,), dense_hidden=20),
        ExpertOptions(4, limit=0.5),
        ExpertOptions(3, limit=1.0, slope=1.0),
        ExpertOptions(4, normalise=False, shared_hidden=20, shared_gate=True),
        ExpertOptions(4, 3, normalise=False, dense_layers=(0,), shared_hidden=8, shared_gate=True),
        ExpertOptions(3, shared_hidden=12),
        ExpertOptions(4, scores="sparsemixer", normalise=False, jitter=0.1),
        ExpertOptions(4, scores="sigmoid", choice_bias=True, shared_hidden=24),
        ExpertOptions(
            *(6, 3), scores="sigmoid", choice_bias=True, groups=3, chosen_groups=2, scale=2.5, shared_hidden=32
        ),
        ExpertOptions(4, 1, scores="sigmoid", scale=0.5),
        ExpertOptions(4, scores="sigmoid", choice_bias=True, shared_hidden=24, latent=8),
        ExpertOptions(4, 3, scores="sigmoid", choice_bias=True, sum_eps=1e-6, dense_layers=(0,), dense_hidden=20),
        ExpertOptions(4, scores="sigmoid", sum_eps=1e-6),
        ExpertOptions(4, scores="sigmoid", normalise=False, scale=0.5),
    ],
    "bias": [
        (),
        ("norm",),
        ("norm", "feedforward"),
        ("norm", "feedforward", "head"),
        ("feedforward",),
        ("norm", "feedforward_in"),
        ("norm", "router"),
        ("norm", "feedforward", "router"),
    ],
    "dropout": [0.0, 0.1],
    "tie_embeddings": [True, False],
    "embedding_norm": [True, False],
    "embedding_std": [0.02, 1.0],
    "layer_scale": [None, 0.5],
    "first_norm": [True, False],
    "shared_layers": [(), (0, 0), (0, 1), (0, 0, 2)],
    "shared_keys": [(), (0, 1, 0, 1), (0, 1, 1, 1), (0, 1, 2, 1)],
    "wide_layers": [(), (2, 3), (3,)],
    "layer_input_width": [None, 4, 5],
    "layer_factors": [False, True],
    "final_norm": [True, False],
    "blocks": ["plain", "reversible"],
    "vocabulary": [WORDS],
    "width": [16, 24],
    "mixer": [
        "softmax",
        "softmax:variant.bias=true",
        "softmax:variant.bias=true,variant.out_bias=false",
        "softmax:variant.out_bias=true",
        "softmax:variant.qk_norm=true",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-06",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_across=true",
        "softmax:variant.bias=true,variant.qk_norm=true,variant.qk_norm_kind=layer,variant.norm_eps=1e-05",
        "softmax:variant.qk_norm=true,variant.qk_norm_kind=layer_per_head,variant.norm_eps=1e-05",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-06,variant.qk_norm_kind=nonparametric_rms"
        ",variant.qk_norm_after=true",
        "softmax:variant.scale=0.3",
        "softmax:variant.scale=1.0,variant.out_bias=true",
        "softmax:variant.softcap=2.0",
        "softmax:variant.scale=0.25,variant.softcap=2.0",
        "softmax:variant.bias=true,variant.scale=0.25",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-06,variant.qk_norm_zero_centred=true,variant.scale=0.25",
        "softmax:variant.bias=true,variant.scale=1.0",
        "softmax:variant.bias=true,position_projections=both",
        "softmax:variant.bias=true,encode_values=true",
        "softmax:variant.clip_qkv=0.5",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_across=true,variant.clip_qkv=0.5",
        "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_across=true,variant.clip_qkv=0.5"
        ",variant.clip_after_norm=true",
        "softmax:variant.bias=true,variant.sinks=true",
        "softmax:variant.sinks=true",
        "linear",
    ],
    "scheme": [
        "rope",
        "rope:rotary_dim=4",
        "rope:rotary_dim=3",
        "rope:theta=100.0",
        "rope:layout=interleaved",
        "rope:layout=interleaved,rotary_dim=4",
        "rope:theta=100.0,rotary_dim=2",
        "rope:spectrum=linear,spectrum.factor=2",
        "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=16,spectrum.rates_by=sequence",
        "rope:spectrum=yarn,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=yarn,spectrum.factor=2,spectrum.trained_length=12,rotary_dim=4",
        "rope:spectrum=llama3,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=proportional,spectrum.partial_rotary_factor=0.5",
        "rope:spectrum=ntk,spectrum.factor=2",
        "rope:spectrum=rounded",
        "rope,none",
        "learned",
        "alibi",
        "alibi:rule=even",
        "alibi:bfloat16_factor=0.5",
        "learned+alibi",
        "learned+t5:buckets=32,max_distance=128",
        "deberta:version.shared=true,buckets=none,max_distance=8",
        "learned+deberta:version.shared=true,buckets=6,max_distance=12,terms=c2p",
        "sinusoidal",
        "sinusoidal:form=tensor2tensor,scale=1.0,position_offset=2",
        "none",
        "t5",
        "t5:per_layer=true",
    ],
    "token_types": [0, 1, 3],
    "head": ["masked", "pooler", "none", "classes", "token_classes", "spans", "next_token"],
    "head_transform": [False, True],
    "head_activation": ["gelu", "gelu_tanh", "relu"],
    "head_bias": [True, False],
    "pool_activation": ["tanh", "relu"],
    "pool_width": [None, 8, 16],
    "causal": [False, True],
    "narrow_norm": [False, True],
    "mask_token": [None, 5],
    "masked_transform": [True, False],
    "head_norm": [True, False],
    "convolution": [0, 3],
    "convolution_groups": [1, 2],
    "convolution_activation": ["tanh", "gelu"],
    "embedding_width": [None, 8, 16],
    "image": [(8, 8), (8, 16)],
    "patch": [(4, 4), (4, 2)],
    "channels": [2],
    "pool": ["token", "mean", "both", "first", "late"],
    "registers": [0, 1],
    "class_position": [True, False],
    "grid": ["stretched", "counted"],
    "labels": [(), tuple(f"L{place}" for place in range(WORDS)), ("eel", "newt")],
    "source_vocabulary": [None, WORDS],
    "source_layers": [None, 1, 3],
    "source_heads": [None, 2, 4],
    "source_kv_heads": [None, 1],
    "source_hidden": [None, 12, 40],
    "source_scheme": [None, "none"],
    "source_mixer": [None, "softmax"],
    "source_sliding_windows": [None, (3,)],
    "cross_mixer": ["softmax", "softmax:variant.bias=true", "softmax:variant.scale=1.0"],
    "cross_scheme": ["none", "rope"],
    "cross_axis": ["shared"],
    "cross_ratio": [None],
    "embedding_scale": [1.0, 2.0, 4.0],
    "round_embedding_scale": [False, True],
    "logit_scale": [1.0, 0.25, 3.0],
    "logit_softcap": [None, 1.0, 5.0],
    "residual_scale": [1.0, 0.22, 2.0],
    "logit_bias": [True, False],
    "start": [None, 0, 3],
    "end": [(), 1, (1, 2)],
    "padding": [None, 0, 2],
    "rules": [NextTokenRules(), NextTokenRules(suppress_tokens=(3,))],
}
