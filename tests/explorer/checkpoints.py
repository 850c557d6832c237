"""Small published checkpoints: random weights by transformers, and tokenizers trained on a page."""

import json
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

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
    "qwen2": {
        "hidden_size": 32,
        "intermediate_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
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


def make_tokenizer(kind, size=400):
    """Return a tokenizer of the tokenizers library of one of the forms that published models have."""
    byte_level = kind.startswith("bytes")
    model = models.BPE() if byte_level else models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    made = tokenizers.Tokenizer(model)
    special = [] if byte_level else ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    if byte_level:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "bytes, prefix")
        made.decoder = decoders.ByteLevel()
    elif kind == "llama":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    # the texts are split at spaces for training, since without words there would be one long token
    texts = Path(__file__).read_text().split(" ") if kind == "llama" else [Path(__file__).read_text()]
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=special, show_progress=False),
    )
    if not byte_level:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


TOKENIZERS = ("bytes", "bytes, prefix", "llama", "metaspace")
