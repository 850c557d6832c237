"""Small models of the families whose layers are of several kinds, and what their tests share.

Tests take it by `runpy.run_path`. What is particular to a family is in the file of its tests.
"""

import json
from dataclasses import dataclass, field

import torch
import transformers

# ends of the names of what is added to the scores of experts for the choice
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")
# and of what the outputs of layers are multiplied by
LAYER_FACTORS = "layer_scalar"
IDS = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))
LEFT = torch.arange(11) >= torch.tensor([[4], [0]])
LONGER = torch.randint(29, (2, 14), generator=torch.Generator().manual_seed(0))
LONGER_LEFT = torch.arange(14) >= torch.tensor([[5], [0]])


@dataclass(frozen=True)
class Mixed:
    """A family: its classes of transformers, the settings of a small model, and what that model is tried with.

    `padded` and `unpadded` are further settings, of tests with padding and of those without it: where something in
    transformers counts padding too, the two cannot have the same. `pieces` are numbers of tokens that go through the
    model one after the other; `written` are those of a prompt and of what is written behind it.
    """

    config: type
    model: type
    settings: dict
    padded: dict = field(default_factory=dict)
    unpadded: dict = field(default_factory=dict)
    ids: torch.Tensor = IDS
    left: torch.Tensor = LEFT
    pieces: tuple = ((6, 1, 1, 3),)
    written: tuple = (9, 12)
    spread: float = 0.2


WORDS = {"vocab_size": 29, "hidden_size": 16, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12, "max_position_embeddings": 64}
QWEN = WORDS | HEADS | {"num_hidden_layers": 4, "head_dim": 8}
QWEN |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 5}
QWEN |= {"linear_value_head_dim": 6, "linear_conv_kernel_dim": 3}
QWEN_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
QWEN_EXPERTS |= {"shared_expert_intermediate_size": 14}
OLMO = WORDS | HEADS | {"num_hidden_layers": 4}
MAMBA = WORDS | HEADS | {"num_hidden_layers": 3}
MAMBA |= {"mamba_n_heads": 8, "mamba_d_state": 6, "mamba_n_groups": 2, "mamba_d_conv": 3}
GRANITE = MAMBA | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
GRANITE |= {"num_local_experts": 4, "shared_intermediate_size": 10, "residual_multiplier": 0.5}
JAMBA = WORDS | {"intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
JAMBA |= {"mamba_d_state": 6, "num_experts": 4, "attn_layer_period": 4, "attn_layer_offset": 1}
FALCON = MAMBA | {"mamba_d_ssm": 24, "mlp_multipliers": [0.7, 1.3], "ssm_multipliers": [0.5, 0.7, 1.2, -0.9, 1.1]}
FALCON |= {"ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.8, "key_multiplier": 0.6, "lm_head_multiplier": 0.5}
FALCON |= {"attention_in_multiplier": -0.9, "attention_out_multiplier": 1.4, "embedding_multiplier": 2.0}
NEMOTRON = {name: size for name, size in (WORDS | HEADS).items() if name != "max_position_embeddings"}
NEMOTRON |= {"head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 5, "ssm_state_size": 6, "n_groups": 2}
NEMOTRON |= {"n_routed_experts": 6, "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 14}
NEMOTRON |= {"layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "mlp"]}
LFM2 = WORDS | HEADS | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
LFM3 = WORDS | HEADS | {"num_hidden_layers": 5, "head_dim": 8, "sliding_window": 3, "conv_L_cache": 4}
LFM3 |= {"layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention"]}
LFM2_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "num_dense_layers": 1}
KIMI = WORDS | HEADS | {"num_hidden_layers": 4, "num_key_value_heads": 2}
KIMI |= {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5}
KIMI |= {"linear_num_heads": 3, "linear_head_dim": 5, "linear_conv_kernel_dim": 3}
KIMI |= {"num_experts": 6, "num_experts_per_token": 2, "moe_intermediate_size": 10}
KIMI |= {"layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}
LLAMA4 = WORDS | {"num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 6, "num_key_value_heads": 2}
LLAMA4 |= {"intermediate_size": 12, "intermediate_size_mlp": 10, "num_local_experts": 5, "num_experts_per_tok": 2}
LLAMA4 |= {"interleave_moe_layer_step": 2, "no_rope_layer_interval": 2, "attention_chunk_size": 4}
LLAMA4 |= {"floor_scale": 3, "attn_scale": 0.5, "max_position_embeddings": 64}
GEMMA4 = WORDS | {"num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 6, "num_key_value_heads": 2}
GEMMA4 |= {"layer_types": ["sliding_attention", "full_attention"] * 3, "sliding_window": 3, "global_head_dim": 10}
GEMMA4 |= {"hidden_size_per_layer_input": 5, "vocab_size_per_layer_input": 29, "num_kv_shared_layers": 3}
GEMMA4 |= {"intermediate_size": 12, "use_double_wide_mlp": True, "max_position_embeddings": 64}
GEMMA4 |= {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "final_logit_softcapping": 20.0}
GEMMA4 |= {"enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 7}


def classes(name):
    """The configuration of a family and its language model in transformers."""
    return getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM")


# of padded texts, transformers carries the bias of padding into the first tokens
BIASES = {"unpadded": {"conv_bias": True}}
FAMILIES = {
    "qwen3_next": Mixed(*classes("Qwen3Next"), QWEN | QWEN_EXPERTS),
    "qwen3_5_text": Mixed(transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM, QWEN),
    "olmo_hybrid": Mixed(*classes("OlmoHybrid"), OLMO, pieces=((6, 1, 4),)),
    "granitemoehybrid": Mixed(*classes("GraniteMoeHybrid"), GRANITE),
    "bamba": Mixed(*classes("Bamba"), MAMBA | {"attn_layer_indices": [1]}),
    "falcon_h1": Mixed(*classes("FalconH1"), FALCON),
    # transformers starts anew with several tokens behind a cache
    "jamba": Mixed(*classes("Jamba"), JAMBA, pieces=((6, *(1,) * 5),)),
    "nemotron_h": Mixed(*classes("NemotronH"), NEMOTRON),
    "lfm2": Mixed(*classes("Lfm2"), LFM2 | {"block_multiple_of": 4}, **BIASES),
    "lfm3": Mixed(*classes("Lfm3"), LFM3, **BIASES),
    "lfm2_moe": Mixed(*classes("Lfm2Moe"), LFM2 | LFM2_EXPERTS, **BIASES),
    "kimi_linear": Mixed(*classes("KimiLinear"), KIMI),
    "gemma4_text": Mixed(transformers.Gemma4TextConfig, transformers.Gemma4ForCausalLM, GEMMA4),
    "gemma4_unified_text": Mixed(
        transformers.Gemma4UnifiedTextConfig,
        transformers.Gemma4UnifiedForCausalLM,
        {name: GEMMA4[name] for name in GEMMA4 if "expert" not in name and "_input" not in name},
    ),
    "llama4_text": Mixed(
        *(transformers.Llama4TextConfig, transformers.Llama4ForCausalLM, LLAMA4),
        # in transformers the temperature counts padding
        padded={"attn_temperature_tuning": False},
        ids=LONGER,
        left=LONGER_LEFT,
        pieces=((9, 1, 1, 1, 1, 1), (6, 4, 1, 3)),
        written=(6, 14),
        spread=0.3,
    ),
}


def drawn(model, spread=0.2):
    """A model with numbers that show."""
    for parameter in model.parameters():
        parameter.data.add_(spread * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith(CHOICE_BIASES):
            buffer.data.normal_(std=0.5)
        if name.endswith(LAYER_FACTORS):
            buffer.data.add_(spread * torch.randn_like(buffer))
    return model.eval()


def eager(model):
    """Other kernels of experts need rows of a multiple of 16 bytes."""
    model.set_experts_implementation("eager")
    return model.eval()


def written(folder, family, **settings):
    """A model of transformers with numbers that show, in a folder."""
    known = FAMILIES[family]
    torch.manual_seed(0)
    model = drawn(eager(known.model(known.config(**(known.settings | settings)))), known.spread)
    model.save_pretrained(folder)
    return model


def read_there(folder):
    """The model in a folder, as transformers reads it."""
    return eager(transformers.AutoModelForCausalLM.from_pretrained(folder))


def change(folder, *without, **settings):
    """Leave keys of config.json out, and give others a value."""
    path = folder / "config.json"
    said = {name: value for name, value in json.loads(path.read_text()).items() if name not in without}
    path.write_text(json.dumps(said | settings))


def near(out, expected, atol=1e-4, rtol=1e-4):
    """Outputs are equal up to the rounding of another order of sums."""
    torch.testing.assert_close(out, expected, rtol=rtol, atol=atol)
