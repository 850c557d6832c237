"""Types of the keys of a config.json: checked before any of them is used.

The default of a key has its type. For keys that may be null, or have several types, it is listed here.
"""

import math
from collections.abc import Mapping
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.core.option_values import as_tuples, is_value_of
from ordinate.pretrained.checkpoint_files import CONFIG

PAIR = tuple[int, int]
OPTIONAL: Mapping[str, Any] = {
    **dict.fromkeys(
        ("head_dim", "n_inner", "num_key_value_heads", "num_decoder_layers", "decoder_vocab_size",
         "pooler_output_size", "sliding_window", "max_window_layers", "pad_token_id", "bos_token_id", "n_embed",
         "seq_length", "original_max_position_embeddings", "word_embed_proj_dim", "num_kv_heads",
         "num_ln_in_parallel_attn", "ffn_hidden_size", "q_lora_rank", "linear_num_key_heads",
         "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "prefix_dense_intermediate_size",
         "moe_latent_size", "attention_chunk_size"),
        int | None,
    ),
    **dict.fromkeys(("partial_rotary_factor", "rope_theta", "rope_local_base_freq", "clip_qkv",
                   "attention_value_scale"), float | None),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "scale_depth"), float | None),
    "scale_emb": float,
    "mamba_d_ssm": int | None,
    "dim_model_base": int | None,
    **dict.fromkeys(("use_bias", "emb_layer_norm_before"), bool | None),
    "use_bidirectional_attention": bool | str | None,
    **dict.fromkeys(
        ("rope_parameters", "rope_scaling", "attn_config", "ffn_config", "per_layer_config"), dict[str, Any] | None
    ),
    **dict.fromkeys(("image_size", "patch_size"), int | PAIR),
    "eos_token_id": int | list[int] | None,
    "decoder_start_token_id": int | None,
    "bad_words_ids": list[list[int]] | None,
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), list[int] | None),
    "sequence_bias": tuple[tuple[tuple[int, ...], float], ...] | None,
    "exponential_decay_length_penalty": tuple[int, float] | None,
    "forced_eos_token_id": int | list[int] | None,
    **dict.fromkeys(
        ("renormalize_logits", "do_sample", "alibi", "new_decoder_architecture", "multi_query", "parallel_attn",
         "rope_interleave"),
        bool | None,
    ),
    **dict.fromkeys(
        ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens", "top_k", "num_beams",
         "forced_bos_token_id"),
        int | None,
    ),
    **dict.fromkeys(
        ("repetition_penalty", "encoder_repetition_penalty", "temperature", "top_h", "top_p", "min_p", "typical_p",
         "epsilon_cutoff", "eta_cutoff"),
        float | None,
    ),
    **dict.fromkeys(("layer_types", "layers_block_type", "mlp_layer_types"), list[str] | None),
    **dict.fromkeys(("mamba_d_head", "time_step_rank", "mamba_dt_rank"), int | str),
    "no_rope_layers": list[int] | None,
    "num_attention_heads_per_layer": list[int] | None,
    "gating": bool | str,
    "linear_attn_config": dict[str, Any],
    "layer_rope_theta": list[float] | None,
    "time_step_limit": list[Any] | None,
    **dict.fromkeys(("mlp_only_layers", "attn_layer_indices", "full_attn_idxs", "moe_layers"), list[int] | None),
    "sliding_window_pattern": int | str | None,
    "dense_act_fn": str,
    "is_gated_act": bool | int | None,
    "embedding_size": int,
    "pos_att_type": list[str] | str | None,
    "architectures": list[str] | None,
    "moe_topk": int | list[int],
    "ffn_act_fn": dict[str, Any] | None,
    "moe_normalize_expert_weights": float | None,
    "id2label": dict[str, str] | None,
}  # fmt: skip
"""Types of keys that have several."""
UNSET: Mapping[str, Any] = {
    "attention_multiplier": float | None,
    **dict.fromkeys(
        ("vocab_size", "mask_token_id", "intermediate_size", "n_routed_experts", "n_shared_experts",
         "num_experts_per_tok", "n_group", "topk_group", "v_head_dim", "num_experts", "top_k_experts",
         "moe_intermediate_size", "num_global_key_value_heads"),
         int | None,
    ),
    "rms_norm_eps": float | None,
}  # fmt: skip
"""Types of keys that may be null only in families where that is the default."""
NO_COUNTS = frozenset(
    {
        "pad_token_id",
        "mask_token_id",
        "bos_token_id",
        "eos_token_id",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "min_length",
        "min_new_tokens",
        "top_k",
        "decoder_start_token_id",
        "max_window_layers",
        "num_register_tokens",
        "pooler_output_size",
        "local_attention",
        "sliding_window",
        "decoder_vocab_size",
        "num_local_experts",
        "num_experts",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "first_k_dense_replace",
        "num_dense_layers",
        "num_nextn_predict_layers",
        "moe_num_shared_experts",
        "moe_layer_start_index",
        "expert_layer_offset",
        "attn_layer_offset",
        "hidden_size_per_layer_input",
    }
)
"""Keys of whole numbers that may be 0; the others are counts, unless their default is 0 or below."""
EPSILONS = frozenset(
    {"layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "norm_eps", "norm_epsilon", "mixer_rms_eps"}
)
"""Keys of small numbers that norms add to variances."""
FACTORS = frozenset(
    {
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "embedding_multiplier",
        "key_multiplier",
        "lm_head_multiplier",
        "residual_multiplier",
        "attention_multiplier",
        "logits_scaling",
        "scale_emb",
        "scale_depth",
        "swiglu_limit",
    }
)
"""Factors and caps that must be above zero."""
COUNTED = (int, int | None, int | PAIR)
REMEDY = "correct it, or download the file again"
WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a text",
    int | PAIR: "a whole number, or a list of height and width",
}


def check_types(config: Mapping[str, Any], defaults: Mapping[str, Any], file: str = CONFIG) -> None:
    """Check the types of the keys of a config.json, or of a generation_config.json.

    Args:
        config: its contents.
        defaults: the default values of the keys that a family reads.
        file: its name.

    Raises:
        ValueError: a value of another type, NaN or infinity, or a count of 0 or below.
    """
    for name, value in config.items():
        default = defaults.get(name)
        kind = OPTIONAL.get(name) or (type(default) if type(default) in WORDS else None)
        kind = UNSET[name] if name in defaults and default is None and name in UNSET else kind
        if kind is not None:
            wanted = WORDS.get(kind) or str(kind).replace("typing.", "")
            must = f"{name} in {file} must be {wanted}"
            need(_fits(value, kind), must, f"got {shown(value)}", REMEDY)
            must = f"whole numbers in {file} must be below 2^62"
            need(not _is_large(value), must, f"got {name}={shown(value)}", REMEDY)
            counts = name not in NO_COUNTS and kind in COUNTED and (not isinstance(default, int) or default > 0)
            must = f"{name} in {file} must be at least 0 and below 1"
            need(name not in EPSILONS or value is None or 0 <= value < 1, must, f"got {shown(value)}", REMEDY)
            must = f"{name} in {file} must be above zero"
            # others have no effect
            positive = name in FACTORS and name in defaults
            need(not positive or value is None or value > 0, must, f"got {shown(value)}", REMEDY)
            sizes = () if not counts or value is None else value if isinstance(value, list) else (value,)
            need(all(size > 0 for size in sizes), must, f"got {shown(value)}", REMEDY)


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 1 << 62


def _fits(value: Any, kind: Any) -> bool:
    # JSON has lists in place of tuples
    reads = any(is_value_of(form, kind) for form in (value, as_tuples(value)))
    return reads and (not isinstance(value, float) or math.isfinite(value))
