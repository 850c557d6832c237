"""Tiny models of the families of transformers, with random numbers."""

from functools import cache

import torch
import transformers as hf

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60}
TEXT = SIZES | {"intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 1}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 40}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
WINDOW = GROUPED | {"sliding_window": 4}
CHUNKS = {"no_rope_layers": [1, 0], "attention_chunk_size": 5, "intermediate_size_mlp": 40, "moe_layers": [1]}
CHUNKS |= {"num_local_experts": 3}
MARKS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 4}
DISENTANGLED = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "position_buckets": 8,
    "max_relative_positions": 16,
}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48} | {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 60,
    "max_position_embeddings": 40,
}
T5 = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48, "vocab_size": 60}
IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48} | {
    "image_size": 16,
    "patch_size": 4,
}
LANGUAGE, MASKED = hf.AutoModelForCausalLM, hf.AutoModelForMaskedLM

# families whose norms, angles or softmax are computed in float32, in any dtype of the model
NARROW = 1e-5
DECODERS = {
    "gpt2": (lambda: hf.GPT2Config(**OLD, bos_token_id=2, eos_token_id=2), LANGUAGE, 1e-13),
    "llama": (lambda: hf.LlamaConfig(**GROUPED), LANGUAGE, NARROW),
    "mistral": (lambda: hf.MistralConfig(**WINDOW), LANGUAGE, NARROW),
    "qwen3": (lambda: hf.Qwen3Config(**GROUPED), LANGUAGE, NARROW),
    "gemma2": (lambda: hf.Gemma2Config(**WINDOW), LANGUAGE, NARROW),
    "gemma3": (lambda: hf.Gemma3TextConfig(**WINDOW), LANGUAGE, NARROW),
    "gpt_neox": (lambda: hf.GPTNeoXConfig(**TEXT, bos_token_id=0, eos_token_id=2), LANGUAGE, NARROW),
    "opt": (
        lambda: hf.OPTConfig(**SIZES, ffn_dim=48, max_position_embeddings=40, word_embed_proj_dim=32),
        LANGUAGE,
        NARROW,
    ),
    "gptj": (lambda: hf.GPTJConfig(**OLD, rotary_dim=4, bos_token_id=2, eos_token_id=2), LANGUAGE, NARROW),
    "bloom": (lambda: hf.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=60), LANGUAGE, NARROW),
    "mpt": (lambda: hf.MptConfig(d_model=32, n_layers=2, n_heads=4, vocab_size=60, max_seq_len=40), LANGUAGE, NARROW),
    "falcon": (lambda: hf.FalconConfig(**SIZES), LANGUAGE, NARROW),
    "qwen2": (lambda: hf.Qwen2Config(**GROUPED), LANGUAGE, NARROW),
    "starcoder2": (lambda: hf.Starcoder2Config(**GROUPED, bos_token_id=2, eos_token_id=2), LANGUAGE, NARROW),
    "smollm3": (lambda: hf.SmolLM3Config(**GROUPED | {"no_rope_layers": [1, 0]}), LANGUAGE, NARROW),
    "phi3": (lambda: hf.Phi3Config(**GROUPED, partial_rotary_factor=0.5), LANGUAGE, NARROW),
    "granite": (
        lambda: hf.GraniteConfig(**GROUPED, residual_multiplier=0.22, embedding_multiplier=3.0),
        LANGUAGE,
        NARROW,
    ),
    "olmo2": (lambda: hf.Olmo2Config(**GROUPED), LANGUAGE, NARROW),
    "olmo3": (
        lambda: hf.Olmo3Config(**WINDOW, layer_types=["sliding_attention", "full_attention"]),
        LANGUAGE,
        NARROW,
    ),
    "exaone4": (lambda: hf.Exaone4Config(**WINDOW, sliding_window_pattern=2), LANGUAGE, NARROW),
    "cohere2": (lambda: hf.Cohere2Config(**WINDOW, sliding_window_pattern=2, logit_scale=0.25), LANGUAGE, NARROW),
    "llama4": (lambda: hf.Llama4TextConfig(**GROUPED, **CHUNKS), LANGUAGE, NARROW),
}
ENCODERS = {
    "bert": (lambda: hf.BertConfig(**TEXT), MASKED, 1e-13),
    "roberta": (lambda: hf.RobertaConfig(**TEXT), MASKED, 1e-13),
    "distilbert": (
        lambda: hf.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=60),
        MASKED,
        1e-13,
    ),
    "modernbert": (lambda: hf.ModernBertConfig(**TEXT, **MARKS), MASKED, NARROW),
    "deberta_v2": (lambda: hf.DebertaV2Config(**TEXT, **DISENTANGLED), MASKED, 1e-13),
    "t5": (
        lambda: hf.T5Config(d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=48, vocab_size=60),
        hf.AutoModelForSeq2SeqLM,
        1e-13,
    ),
    "bart": (lambda: hf.BartConfig(**BART), hf.AutoModelForSeq2SeqLM, 1e-13),
    "umt5": (lambda: hf.UMT5Config(**T5), hf.AutoModelForSeq2SeqLM, NARROW),
    "t5_encoder": (lambda: hf.T5Config(**T5), hf.AutoModelForTextEncoding, NARROW),
    "umt5_encoder": (lambda: hf.UMT5Config(**T5), hf.AutoModelForTextEncoding, NARROW),
}
IMAGES = {
    "vit": (lambda: hf.ViTConfig(**IMAGE), hf.AutoModelForImageClassification, NARROW),
    "dinov2": (lambda: hf.Dinov2Config(**IMAGE), hf.AutoModelForImageClassification, 1e-13),
    "dinov2_registers": (
        lambda: hf.Dinov2WithRegistersConfig(**IMAGE, num_register_tokens=2),
        hf.AutoModelForImageClassification,
        1e-13,
    ),
    "dinov3": (lambda: hf.DINOv3ViTConfig(**IMAGE, num_register_tokens=2), hf.AutoModel, NARROW),
    "clip": (lambda: hf.CLIPVisionConfig(**IMAGE), hf.AutoModel, NARROW),
}
SWIN = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 32, "patch_size": 4}
ALL = DECODERS | ENCODERS | IMAGES
# layers with sliding windows or chunks, and a norm between the attention output and the residual stream
WINDOWED = ("mistral", "gemma2", "gemma3", "modernbert", "olmo3", "exaone4", "cohere2", "llama4")
NORMED = ("gemma2", "gemma3", "olmo2", "olmo3", "exaone4")
# only the first of whose two layers has RoPE
ROTATED_FIRST = ("smollm3", "exaone4", "cohere2")
# whose function of RoPE has another name, so that the hook `raw` is not called
UNHOOKED = ("llama4",)
# whose parts are those of other families, in another arrangement
ARRANGED = ("qwen2", "starcoder2", "smollm3", "phi3", "olmo2", "olmo3", "exaone4", "cohere2", "umt5", "t5_encoder")
ARRANGED += ("umt5_encoder", "llama4")


def make(name, **options):
    """A model of this family in float64, with numbers large enough to matter."""
    config, auto, _ = ALL[name]
    torch.manual_seed(0)
    model = auto.from_config(config(), **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.05))
    return model


@cache
def subject(name):
    from ordinate.probing._attach import attach

    return attach(make(name), name=name)
