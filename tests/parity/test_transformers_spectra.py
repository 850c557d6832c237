"""Spectra of RoPE from `rope_parameters`, compared with transformers."""

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import Rope

llama = pytest.importorskip("transformers.models.llama.modeling_llama")
LlamaConfig = pytest.importorskip("transformers.models.llama.configuration_llama").LlamaConfig
ROPE_INIT_FUNCTIONS = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
LONG = {"short_factor": [1.0 + m / 16 for m in range(16)], "long_factor": [2.0 + m for m in range(16)]}
CASES = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "yarn,spectrum.fast=16,spectrum.slow=2": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 512,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    },
    "yarn,spectrum.truncate=False": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "truncate": False,
    },
    "yarn,spectrum.attention_factor=1.5": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "attention_factor": 1.5,
    },
    "yarn,spectrum.mscale=0.7,spectrum.mscale_all_dim=1": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 512,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 512, "factor": 4.0, **LONG},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
}
FLOAT32 = {"within": 1e-5, "because": "their angles are in float32"}


def configured(parameters, theta=10_000.0, **options):
    """A model of transformers with heads of 32 channels, trained on 512 tokens."""
    longest = 512 if parameters["rope_type"] in ("dynamic", "default", "linear") else 2048
    rope = {"rope_theta": theta, **parameters}
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": longest}
    return LlamaConfig(**sizes, rope_parameters=rope, **options)


def scheme_of(config):
    return Rope.from_rope_parameters(config.rope_parameters, head_width=32, max_length=config.max_position_embeddings)


@pytest.mark.covering(1)
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("length", [1, 512, 513, 2048])
@pytest.mark.parametrize("name", CASES)
def test_rates_and_attention_factor_match(name, length, theta, record):
    config = configured(CASES[name], theta)
    make = ROPE_INIT_FUNCTIONS[CASES[name]["rope_type"]]
    theirs, multiplier = make(config, "cpu", seq_len=length)
    ours = scheme_of(config)
    rates = ours.spectrum.rates_at(torch.tensor(float(length)), 32, theta)
    # rates range from 1 to 1e-5: compare them relative to the unscaled ones
    plain = torch.tensor([theta ** (-2 * m / 32) for m in range(16)], dtype=torch.float64)
    record(
        torch.cat([rates / plain, torch.tensor([ours.spectrum.query_key_scale])]),
        torch.cat([theirs / plain, torch.tensor([multiplier])]),
        scheme=f"rope:spectrum={name}",
        oracle=make,
        what="rates, relative to the unscaled ones, and attention factor",
        within=2e-6,
        because="their rates are in float32",
    )


@pytest.mark.parametrize("length", [50, 600])
@pytest.mark.parametrize("name", CASES)
def test_attention_of_the_newest_token_matches(name, length, record):
    config = configured(CASES[name])
    q, k, v = torch.randn(3, 1, 2, length, 32)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(length)[None])
    # theirs uses the longest length for all tokens; ours the length of each query, so the newest query agrees
    last, keys = llama.apply_rotary_pos_emb(q, k, cos, sin)
    theirs = torch.nn.functional.scaled_dot_product_attention(last[:, :, -1:], keys, v)
    scheme, where = scheme_of(config), Geometry.causal(1, cached=length - 1)
    ours = attend(q[:, :, -1:], k, v, scheme.at(where))
    record(
        ours,
        theirs,
        scheme=f"rope:spectrum={name}",
        oracle=llama.LlamaRotaryEmbedding,
        what="attention of the newest token",
        within=1e-4,
        because=FLOAT32["because"],
    )
