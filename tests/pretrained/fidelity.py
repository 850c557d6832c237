"""Random configurations of each family, and what becomes of them here and in transformers.

`there` draws a config.json as people write them (fields left out, null, aliases, rare fields) and loads it; `here`
draws a `Shape` and saves it. Both return an outcome: "equal", "refused: FIELD", "WRONG: ...", "crash: ...", or "not
theirs" where transformers does not run the configuration itself, "not ours" where the shape is none.

`python tests/pretrained/fidelity.py 200` counts outcomes; names of families behind the number choose some.
"""

import json
import logging
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

OUT = object()
"""A field that is left out."""
WORDS = 19
IDS = torch.randint(3, WORDS, (2, 9), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(0))
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
LLAMA = {"vocab_size": WORDS, **SMALL, "num_key_value_heads": 1, "max_position_embeddings": 32}
TOKENS = {"pad_token_id": [OUT, None, 0, 2], "bos_token_id": [OUT, None, 1], "eos_token_id": [OUT, None, 2, [1, 2]]}
EPS = [OUT, 1e-6, 1e-3, 0.1]
TIED = [OUT, True, False]
ACTIVATIONS = [
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_fast",
    "gelu_python",
    "relu",
    "silu",
    "swish",
    "quick_gelu",
]
WINDOWS = {
    "use_sliding_window": [OUT, True, False],
    "sliding_window": [OUT, None, 3],
    "max_window_layers": [OUT, 0, 1, 2],
    "layer_types": [OUT, None, ["full_attention", "sliding_attention"], ["sliding_attention"] * 2],
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
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4},
        {"rope_type": "yarn", "rope_theta": 100.0, **LONG},
        {"rope_type": "yarn", "factor": 2.0, "beta_fast": 8.0, "truncate": False},
        {"rope_type": "yarn", "attention_factor": 0.5, "mscale": 0.7, "mscale_all_dim": 0.5, **LONG},
        {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.5, **LONG},
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LONG},
        {"rope_type": "longrope", **factors, **LONG},
        {"rope_type": "longrope", **factors, "original_max_position_embeddings": 16},
        {"rope_type": "longrope", **factors, "original_max_position_embeddings": 4},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 100.0},
    ]


ROPE = {
    "rope_parameters": [OUT, *ropes(4)],
    "rope_scaling": [OUT, OUT, *ropes(4)],
    "rope_theta": [OUT, 100.0, 500.0],
    "partial_rotary_factor": [OUT, OUT, 0.5, 1.0],
    "original_max_position_embeddings": [OUT, OUT, 8],
    "max_position_embeddings": [32, 64, 5],
}
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
    **ROPE,
    **TOKENS,
}
BERT_FIELDS = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    "classifier_dropout": [None, 0.1],
    "type_vocab_size": [OUT, 1, 3],
    "layer_norm_eps": EPS,
    "position_embedding_type": [OUT, "absolute"],
    "tie_word_embeddings": [OUT, True],
    "num_attention_heads": [1, 4],
    "max_position_embeddings": [16, 40],
    "is_decoder": [OUT, False],
    "add_cross_attention": [OUT, False],
    **TOKENS,
}
BERT = {"vocab_size": WORDS, **SMALL, "max_position_embeddings": 32}
VISION = {**SMALL, "image_size": 8, "patch_size": 4, "num_channels": 2}
VISION_FIELDS = {
    "hidden_act": [OUT, *ACTIVATIONS],
    "hidden_dropout_prob": DROPOUT,
    "attention_probs_dropout_prob": DROPOUT,
    "layer_norm_eps": EPS,
    "qkv_bias": [OUT, True, False],
    "image_size": [8, [8, 8], [8, 16]],
    "patch_size": [2, 4, [4, 4], [4, 2]],
    "num_labels": [OUT, 2, 3],
    "id2label": [OUT, None, {"0": "eel", "1": "newt", "2": "frog"}],
}
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
}
LM, MASKED, BASE, CLASSES, PAIRS = "CausalLM", "MaskedLM", "", "ImageClassification", "Seq2SeqLM"
# family: (sizes, fields and their values, heads of transformers)
FIELDS = {
    "llama": (LLAMA, SEED_LLAMA | {"mlp_bias": [OUT, True, False], "pretraining_tp": [1, 2]}, [LM]),
    "mistral": (LLAMA, SEED_LLAMA | {"sliding_window": [OUT, None, 3]}, [LM]),
    "qwen2": (LLAMA, SEED_LLAMA | WINDOWS, [LM]),
    "qwen3": (LLAMA | {"head_dim": 8}, SEED_LLAMA | WINDOWS | {"head_dim": [6, 12, OUT]}, [LM]),
    "gpt2": (
        GPT,
        GPT_FIELDS
        | {
            "n_positions": [9, 40],
            "n_head": [1, 4],
            "scale_attn_weights": [OUT, True, False],
            "scale_attn_by_inverse_layer_idx": [OUT, True, False],
            "reorder_and_upcast_attn": [OUT, True, False],
            "add_cross_attention": [OUT, False],
            "summary_type": ["first"],
            "summary_use_proj": [False],
            "summary_activation": [None],
            "summary_proj_to_labels": [False],
            "summary_first_dropout": DROPOUT,
        },
        [LM],
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
            "rotary_pct": [OUT, 0.5, 1.0],
            "rotary_emb_base": [OUT, 100, 500],
            **ROPE,
            **{"rope_parameters": [OUT, *ropes(1)], "rope_scaling": [OUT, OUT, *ropes(1)]},
            **TOKENS,
        },
        [LM],
    ),
    "gptj": (GPT | {"rotary_dim": 4}, GPT_FIELDS | {"rotary_dim": [2, 6, 8], "n_head": [1, 4]}, [LM]),
    "bloom": (
        {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2},
        {
            "n_head": [4, 8, OUT],
            "n_layer": [1, OUT],
            "hidden_size": [24, OUT],
            "n_embed": [OUT, OUT, 24],
            "layer_norm_epsilon": EPS,
            "apply_residual_connection_post_layernorm": [OUT, False],
            "hidden_dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "pretraining_tp": [1, 2],
            "slow_but_exact": [OUT, True],
            "seq_length": [OUT, 64],
            "tie_word_embeddings": TIED,
            **TOKENS,
        },
        [LM],
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
            ],
            "init_device": ["cpu", "meta"],
            "logit_scale": [OUT, None],
            "no_bias": [OUT, True, False],
            "embedding_fraction": [1.0, 0.5],
            "norm_type": [OUT, "low_precision_layernorm"],
            "tie_word_embeddings": TIED,
            **TOKENS,
        },
        [LM],
    ),
    "bert": (BERT, BERT_FIELDS, [MASKED, BASE]),
    "roberta": (BERT | {"pad_token_id": 1}, BERT_FIELDS | {"pad_token_id": [OUT, 0, 1, 2]}, [MASKED, BASE]),
    "modernbert": (
        BERT | dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"]),
        {
            "hidden_activation": [OUT, "gelu", "gelu_pytorch_tanh", "gelu_new", "silu"],
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
            "embedding_dropout": DROPOUT,
            "mlp_bias": [OUT, True, False],
            "mlp_dropout": DROPOUT,
            "decoder_bias": [OUT, True],
            "classifier_pooling": [OUT, "mean"],
            "classifier_dropout": DROPOUT,
            "classifier_bias": [OUT, True, False],
            "classifier_activation": [OUT, *ACTIVATIONS],
            "deterministic_flash_attn": [False],
            "sparse_prediction": [False],
            "sparse_pred_ignore_index": [-100],
            "initializer_cutoff_factor": [2.0],
            "tie_word_embeddings": [OUT, True],
            **TOKENS,
        },
        [MASKED, BASE],
    ),
    "deberta_v2": (
        BERT
        | {"relative_attention": True, "share_att_key": True, "position_biased_input": False, "position_buckets": 4}
        | {"pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 12},
        {
            **{key: BERT_FIELDS[key] for key in BERT_FIELDS if key not in ("position_embedding_type",)},
            "type_vocab_size": [OUT, 0, 2],
            "max_relative_positions": [OUT, -1, 8, 12],
            "pos_att_type": ["p2c|c2p", "C2P | P2C", "c2p", ["p2c"], ["c2p", "p2c"]],
            "norm_rel_ebd": [OUT, "none", "layer_norm", "LAYER_NORM"],
            "position_buckets": [4, 6],
            "conv_kernel_size": [OUT, 0],
            "embedding_size": [OUT, 16],
            "attention_head_size": [OUT],
            "pooler_dropout": DROPOUT,
            "pooler_hidden_act": ["gelu"],
            "pooler_hidden_size": [OUT, 16],
            "legacy": [OUT, True],
            "max_position_embeddings": [12, 16],
        },
        [MASKED, BASE],
    ),
    "vit": (
        VISION,
        VISION_FIELDS | {"encoder_stride": [4], "pooler_output_size": [OUT, None, 16], "pooler_act": [OUT, "tanh"]},
        [CLASSES, BASE],
    ),
    "dinov2": (VISION, DINO_FIELDS | {"use_mask_token": [OUT, True, False]}, [CLASSES, BASE]),
    "dinov2_with_registers": (VISION, DINO_FIELDS | {"num_register_tokens": [OUT, 1, 2]}, [CLASSES, BASE]),
    "t5": (
        {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 12, "num_layers": 2, "num_heads": 2}
        | {"decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 40},
        {
            "num_decoder_layers": [OUT, None, 1, 3],
            "num_heads": [1, 4],
            "d_kv": [OUT, 4, 6],
            "relative_attention_num_buckets": [OUT, 8, 6],
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
            "classifier_dropout": DROPOUT,
            "tie_word_embeddings": TIED,
            "decoder_start_token_id": [OUT, 0],
            "pad_token_id": [OUT, 0],
            "eos_token_id": [OUT, 1],
            "is_decoder": [OUT, False],
        },
        [PAIRS],
    ),
    "marian": (
        {"vocab_size": WORDS, "d_model": 16, "max_position_embeddings": 32, "pad_token_id": 18, "eos_token_id": 0}
        | {"decoder_start_token_id": 18, "forced_eos_token_id": None}
        | {
            f"{side}_{name}": size
            for side in ("encoder", "decoder")
            for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 12))
        },
        {
            "decoder_vocab_size": [OUT, None, WORDS],
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
            "tie_word_embeddings": [OUT, True],
            "static_position_embeddings": [OUT, True],
            "normalize_before": [OUT, False],
            "is_decoder": [OUT, False],
            "bad_words_ids": [OUT, [[18]]],
            "num_beams": [OUT, 4],
        },
        [PAIRS],
    ),
}


def config_class(family):
    import transformers

    return transformers.CONFIG_MAPPING[family.replace("_v2", "-v2")]


def drawn(family, rng):
    """A config.json as a dictionary, and the head of the model."""
    sizes, fields, heads = FIELDS[family]
    raw, kind = dict(sizes), config_class(family)
    for name in rng.sample(sorted(fields | INERT), rng.randint(0, 6)):
        value = rng.choice((fields | INERT)[name])
        raw.pop(name, None)
        if value is not OUT:
            raw[name] = value
    for alias, name in kind.attribute_map.items():
        if name in raw and rng.random() < 0.2:
            raw[alias] = raw.pop(name)
    return raw, rng.choice(heads)


def model_of(config, head):
    """The model of transformers, with numbers drawn so that each of them shows."""
    import transformers

    model = getattr(transformers, f"AutoModel{'For' * bool(head)}{head}").from_config(config).eval()
    for name, parameter in model.named_parameters():
        if not name.endswith("embed_positions.weight"):
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def outputs(other, head):
    """What a model of transformers makes of the inputs."""
    if head == CLASSES or not hasattr(other.config, "vocab_size"):
        height, width = numbers(other.config.image_size)
        came = other(PIXELS.repeat(1, 1, height // 8, width // 8))
    elif head == PAIRS:
        came = other(input_ids=IDS, decoder_input_ids=IDS[:, :7])
    else:
        came = other(IDS)
    return (
        [came.logits] if head else [came.last_hidden_state, *([] if came.get("pooler_output") is None else [came[1]])]
    )


def numbers(size):
    return (size, size) if isinstance(size, int) else size


def ours(model, head):
    """What our model makes of the same inputs, in the same order."""
    from ordinate.models.encoder import Encoder
    from ordinate.models.vision import VisionTransformer

    if isinstance(model, VisionTransformer):
        height, width = model.shape.image
        x = model(PIXELS.repeat(1, 1, height // 8, width // 8))
        if head:
            return [model.logits(x)]
        return [x, model.pool(x) if model.shape.head == "pooler" else x[:, 0]]
    if head == PAIRS:
        return [model(IDS, IDS[:, :7])]
    if not isinstance(model, Encoder):
        return [model(IDS)]
    x = model(IDS)
    return [model.logits(x)] if head else [x, *([model.pool(x)] if model.shape.head == "pooler" else [])]


def judged(mine, expected):
    """Whether outputs are equal, up to rounding."""
    if len(mine) != len(expected):
        return f"WRONG: {len(mine)} outputs, {len(expected)} there"
    worst = max(
        ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else float("inf")
        for a, b in zip(mine, expected, strict=True)
    )
    return "equal" if worst < 1e-4 else f"WRONG: by {worst:.1e}"


def field_of(error, names):
    """The field that a refusal names."""
    text = str(error)
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"\b{re.escape(name)}\b", text.split(";")[0]) or re.search(rf"\b{re.escape(name)}=", text):
            return name
    return f"no field in {text[:150]!r}"


@torch.no_grad()
def there(family, seed, folder):
    """Draw a configuration of transformers, and load it."""
    from ordinate.pretrained.weights import load

    rng = random.Random(f"{family} {seed}")
    raw, head = drawn(family, rng)
    torch.manual_seed(seed)
    try:
        kind = config_class(family)
        config = kind.from_dict(dict(json.loads(json.dumps(raw))))
        model = model_of(config, head)
        expected = outputs(model, head)
        if not all(x.isfinite().all() for x in expected):
            return "not theirs", raw
    except Exception:
        return "not theirs", raw
    about = {"model_type": kind.model_type, "architectures": [type(model).__name__]}
    model.save_pretrained(folder)
    # as drawn, in place of the one that transformers wrote out in full
    (folder / "config.json").write_text(json.dumps(raw | about))
    (folder / "generation_config.json").unlink(missing_ok=True)
    try:
        mine = load(folder)
    except ValueError as error:
        nested = [key for value in raw.values() if isinstance(value, dict) for key in value]
        return f"refused: {field_of(error, [*raw, *nested, *FIELDS[family][1]])}", raw
    except Exception as error:
        return f"crash: {error!r}", raw
    return judged(ours(mine, head), expected), raw


SHAPES = {
    "layers": [1, 2, 3],
    "heads": [1, 2, 4],
    "kv_heads": [None, 1, 2],
    "head_width": [None, 4, 6, 8],
    "sliding_windows": [(None,), (3,), (3, None), (None, 4)],
    "max_length": [16, 31],
    "norm": ["rms", "layer"],
    "norm_eps": [None, 1e-6, 1e-2],
    "norm_position": ["pre", "post", "parallel", "shared"],
    "feedforward": ["gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"],
    "hidden": [None, 12, 32, 64, 40],
    "bias": [(), ("norm",), ("norm", "feedforward"), ("norm", "feedforward", "head"), ("feedforward",)],
    "dropout": [0.0, 0.1],
    "tie_embeddings": [True, False],
    "embedding_norm": [True, False],
    "layer_scale": [None, 0.5],
    "first_norm": [True, False],
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
        "softmax:variant.scale=0.3",
        "softmax:variant.softcap=2.0",
        "softmax:variant.bias=true,variant.scale=1.0",
        "linear",
    ],
    "scheme": [
        "rope",
        "rope:rotary_dim=4",
        "rope:theta=100.0",
        "rope:layout=interleaved",
        "rope:layout=interleaved,rotary_dim=4",
        "rope:spectrum=linear,spectrum.factor=2",
        "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=16,spectrum.rates_by=sequence",
        "rope:spectrum=yarn,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=yarn,spectrum.factor=2,spectrum.trained_length=12,rotary_dim=4",
        "rope:spectrum=llama3,spectrum.factor=2,spectrum.trained_length=12",
        "rope:spectrum=proportional,spectrum.partial_rotary_factor=0.5",
        "rope:spectrum=ntk,spectrum.factor=2",
        "rope,none",
        "learned",
        "alibi",
        "alibi:rule=even",
        "learned+alibi",
        "sinusoidal",
        "none",
        "t5",
    ],
    "token_types": [0, 1, 3],
    "head": ["masked", "pooler", "none", "classes"],
    "head_activation": ["gelu", "gelu_tanh", "relu"],
    "head_bias": [True, False],
    "image": [(8, 8), (8, 16)],
    "patch": [(4, 4), (4, 2)],
    "channels": [2],
    "pool": ["token", "mean", "both"],
    "registers": [0, 1],
    "class_position": [True, False],
    "grid": ["stretched", "counted"],
    "labels": [(), tuple(f"L{place}" for place in range(WORDS))],
    "source_vocabulary": [None, WORDS],
    "source_layers": [None, 1, 3],
    "source_scheme": [None, "none"],
    "source_mixer": [None, "softmax"],
    "source_sliding_windows": [None, (3,)],
    "cross_mixer": ["softmax", "softmax:variant.bias=true", "softmax:variant.scale=1.0"],
    "cross_scheme": ["none", "rope"],
    "cross_axis": ["shared"],
    "cross_ratio": [None],
    "embedding_scale": [1.0, 2.0, 4.0],
    "logit_scale": [1.0, 0.25, 3.0],
    "logit_bias": [True, False],
    "start": [0, 3],
    "end": [1, 2],
    "padding": [0, 2],
    "suppress_tokens": [(), (3,)],
}


def base_shape(family, folder):
    """A shape that the family can represent: that of its sizes."""
    from ordinate.pretrained.weights import published_shape

    sizes, _, heads = FIELDS[family]
    config = config_class(family).from_dict(dict(sizes))
    model = model_of(config, heads[0])
    model.save_pretrained(folder)
    return published_shape(folder)


@torch.no_grad()
def here(family, seed, base, folder):
    """Draw a shape near one of the family, save it, and read it in transformers."""
    import transformers

    from ordinate.models.registry import MODEL_KINDS
    from ordinate.pretrained.weights import save

    rng = random.Random(f"{family} {seed}")
    torch.manual_seed(seed)
    names = [name for name in SHAPES if hasattr(base, name)]
    changes = {name: rng.choice(SHAPES[name]) for name in rng.sample(names, rng.randint(1, 4))}
    try:
        shape = replace(base, **changes)
        kind = next(one.model for one in MODEL_KINDS.values() if one.shape is type(base))
        model = kind(shape).eval()
    except (ValueError, TypeError):
        return "not ours", changes
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    try:
        save(model, folder, family)
    except ValueError as error:
        return f"refused: {field_of(error, [*changes, *names])}", changes
    except Exception as error:
        return f"crash: {error!r}", changes
    try:
        named = json.loads((folder / "config.json").read_text())["architectures"][0]
        other = getattr(transformers, named).from_pretrained(folder).eval()
        head = next((head for head in (LM, MASKED, CLASSES, PAIRS) if named.endswith(head)), BASE)
        head = {"GPT2LMHeadModel": LM, "MarianMTModel": PAIRS, "T5ForConditionalGeneration": PAIRS}.get(named, head)
        # a pooler that the model lacks is drawn at random there
        count = 1 if getattr(shape, "head", None) == "none" else 2
        return judged(ours(model, head)[:count], outputs(other, head)[:count]), changes
    except Exception as error:
        return f"crash: cannot be read: {str(error)[:200]!r}", changes


def quiet():
    """Keep transformers from writing warnings about each configuration."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")


def counts(family, number, both=("there", "here")):
    """Outcomes of this many draws, by direction."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        base = base_shape(family, Path(name)) if "here" in both else None
        for way in both:
            found[way] = []
            for seed in range(number):
                folder = Path(name, way, str(seed))
                folder.mkdir(parents=True)
                found[way].append(there(family, seed, folder) if way == "there" else here(family, seed, base, folder))
                for file in folder.iterdir():
                    file.unlink()
    return found


if __name__ == "__main__":
    quiet()
    torch.set_num_threads(1)
    chosen = sys.argv[2:] or FIELDS
    for family in chosen:
        for way, outcomes in counts(family, int(sys.argv[1])).items():
            kinds = Counter(outcome.split(":")[0] for outcome, _ in outcomes)
            print(f"{family:22} {way:6}", dict(kinds), flush=True)
            refused = Counter(outcome for outcome, _ in outcomes if outcome.startswith("refused"))
            print("   ", dict(refused.most_common(12)))
            for outcome, raw in [pair for pair in outcomes if pair[0].startswith(("WRONG", "crash"))][:6]:
                print("   !", outcome[:230], raw)
