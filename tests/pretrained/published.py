"""Published configurations (`published.json`), made small: fewer layers, narrower, with a small vocabulary.

What decides how a model computes stays: shares of heads and channels, whether two sizes are equal, whether a token is
in the vocabulary, and every key without a size.
"""

import json
from pathlib import Path

TABLE = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
REFUSED = TABLE["refused"]
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
LAYERS += ("encoder_layers", "decoder_layers", "max_window_layers")
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
)
WIDTHS = ("hidden_size", "n_embd", "n_embed", "d_model", "pooler_hidden_size")
INNER = ("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "ffn_hidden_size")
# narrower tables, experts
INNER += ("word_embed_proj_dim", "moe_intermediate_size", "shared_expert_intermediate_size")
# parts of a head's channels
CHANNELS = ("head_dim", "d_kv", "attention_head_size", "rotary_dim")
TOKENS = ("bos", "eos", "pad", "cls", "sep", "mask", "unk", "decoder_start", "forced_eos", "forced_bos")
# a window that texts exceed, images of four patches
FIXED = {
    "sliding_window": 5,
    "window_size": 5,
    "local_attention": 6,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 2,
}
MOST_LAYERS, WORDS, HEAD_WIDTH = 4, 96, 16


def config_of(name):
    """The config.json of a model of the table."""
    own = dict(TABLE["models"][name])
    like, without = own.pop("like", None), own.pop("without", ())
    full = {**(config_of(like) if like else {}), **own}
    return {key: value for key, value in full.items() if key not in without}


def models():
    """The config.json files of all models."""
    return {name: config_of(name) for name in TABLE["models"]}


def shrunk(config):
    """The config.json of a small model."""
    small = config | {key: value for key, value in FIXED.items() if config.get(key)}
    small |= _layers(config) | _widths(config) | _tokens(config) | _factors(config)
    return {key: small[key] for key in config}


def _layers(config):
    deepest = max([config[key] for key in LAYERS[:-1] if config.get(key)], default=1)

    def fewer(count):
        return max(1, min(MOST_LAYERS, deepest) * count // deepest)

    found = {key: fewer(config[key]) for key in LAYERS if config.get(key)}
    found |= {
        key: config[key][: fewer(deepest)]
        for key in ("layer_types", "no_rope_layers", "attention_layers")
        if config.get(key)
    }
    if "attention_types" in config:
        # a list for each kind of layers, with the number of its repetitions
        found["attention_types"] = [[kinds, fewer(deepest) // len(kinds)] for kinds, _ in config["attention_types"]]
    if "stage_names" in config:
        last = fewer(deepest)
        stages = [f"stage{place}" for place in range(1, last + 1)]
        found |= {"stage_names": ["stem", *stages], "out_features": stages[-1:], "out_indices": [last]}
    return found


def _widths(config):
    heads = next((config[key] for key in HEADS if config.get(key)), None)
    width = next((config[key] for key in WIDTHS if config.get(key)), None)
    if heads is None or width is None:
        return {}
    kv_heads = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
    # slopes of ALiBi depend on whether the number of heads is a power of two
    fewer = {heads: 4 if heads & (heads - 1) == 0 else 6 if heads % 2 == 0 else 5}.get(kv_heads)
    if fewer is None:
        kv_heads, groups = min(kv_heads, 2), heads // kv_heads
        fewer = kv_heads * groups
    else:
        kv_heads = fewer
    narrow = fewer * HEAD_WIDTH
    sizes = (
        {key: fewer for key in HEADS}
        | {key: narrow for key in WIDTHS}
        | dict.fromkeys(("num_key_value_heads", "num_kv_heads"), kv_heads)
    )
    sizes |= {key: max(8, round(narrow * (config.get(key) or 0) / width / 8) * 8) for key in INNER}
    head_width = width // heads
    # of a GPT-NeoX it has no effect
    sizes |= {key: max(2, round(HEAD_WIDTH * (config.get(key) or 0) / head_width / 2) * 2) for key in CHANNELS}
    return {key: size for key, size in sizes.items() if config.get(key)}


def _factors(config):
    """The factors of LongRoPE, one for each pair of rotated channels."""
    ropes = config.get("rope_scaling") or {}
    pairs = int(HEAD_WIDTH * config.get("partial_rotary_factor", 1.0)) // 2
    fewer = {key: ropes[key][:pairs] for key in ("short_factor", "long_factor") if key in ropes}
    return {"rope_scaling": ropes | fewer} if fewer else {}


def _tokens(config):
    words = config.get("vocab_size")
    if words is None:
        return {}

    def smaller(token):
        if isinstance(token, list):
            return [smaller(one) for one in token]
        if token is None or token < 0:
            return token
        # the last ones stay the last ones, those outside stay outside
        return token - words + WORDS if token > words - 30 else token % 50

    named = [f"{key}_token_id" for key in TOKENS] + ["bad_words_ids"]
    sizes = {key: WORDS for key in ("vocab_size", "decoder_vocab_size") if key in config}
    return sizes | {key: smaller(config[key]) for key in named if key in config}
