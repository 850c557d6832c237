"""Tiny models of transformers, with random weights."""

import transformers

WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = WIDE | {"vocab_size": 29, "max_position_embeddings": 64}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
NONE = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
IMAGE = WIDE | {"image_size": 12, "patch_size": 4}
EARLY = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 29}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 29}
BART |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 29}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}

DECODERS = {
    "gpt2": EARLY | NONE,
    "llama": GROUPED | NONE,
    "mistral": GROUPED | NONE | {"sliding_window": 4},
    "qwen2": GROUPED | NONE,
    "qwen3": GROUPED | NONE,
    "gemma2": GROUPED | NONE | WINDOWS | {"attn_logit_softcapping": 2.0},
    "gemma3_text": GROUPED | NONE | WINDOWS,
    "gpt_neox": TEXT | NONE,
    "opt": TEXT | {"ffn_dim": 48, "word_embed_proj_dim": 32} | NONE,
    "gpt_oss": GROUPED | NONE | WINDOWS | EXPERTS,
    "llama4_text": GROUPED | NONE | EXPERTS | {"attention_chunk_size": 4, "no_rope_layers": [1, 0]},
}
ENCODERS = {
    "bert": TEXT,
    "roberta": TEXT | {"pad_token_id": 0},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 29},
    "modernbert": TEXT | {"pad_token_id": 0, "local_attention": 4, "global_attn_every_n_layers": 2},
}
BOTH = {"t5": T5 | {"decoder_start_token_id": 0}, "bart": BART | {"decoder_start_token_id": 2}}
IMAGES = {"vit": IMAGE, "dinov2": IMAGE}
TWO = {"clip": {"text_config": TEXT | {"eos_token_id": 28}, "vision_config": IMAGE, "projection_dim": 16}}


def made(name):
    """The model, its numbers drawn so that every one of them shows."""
    config = transformers.CONFIG_MAPPING[name](**(DECODERS | ENCODERS | BOTH | IMAGES | TWO)[name])
    auto = transformers.AutoModel
    if name in DECODERS:
        auto = transformers.AutoModelForCausalLM
    elif name in BOTH:
        auto = transformers.AutoModelForSeq2SeqLM
    transformers.set_seed(0)
    model = auto.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * parameter.data.clone().normal_())
    return model
