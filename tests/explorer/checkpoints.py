"""Small published checkpoints, written by transformers with random weights."""

import json

import torch

SIZES = {
    "llama": {
        "hidden_size": 32,
        "intermediate_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "mistral": {
        "hidden_size": 36,
        "intermediate_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "sliding_window": 5,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        "hidden_size": 32,
        "intermediate_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "hidden_act": "gelu",
    },
    "gpt2": {"n_embd": 36, "n_layer": 2, "n_head": 3, "n_positions": 40, "scale_attn_by_inverse_layer_idx": True},
    "gpt_neox": {
        "hidden_size": 32,
        "intermediate_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "bloom": {"hidden_size": 36, "n_layer": 2, "n_head": 6},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
}


def write_checkpoint(family, folder, vocabulary=256, **changes):
    """Write a small model of a family; every weight is random, also those that are usually 0 or 1."""
    from transformers import AutoConfig, AutoModelForCausalLM

    # of a vocabulary of bytes the usual special tokens are no part
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = AutoConfig.for_model(family, **{**SIZES[family], "vocab_size": vocabulary, **special, **changes})
    torch.manual_seed(len(family))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())
