"""Checks of the sizes in a config.json against the tensors of its checkpoint, before any module is made.

A config.json of a few bytes can name a billion layers. Each size must fit the header of the safetensors files, which
cannot claim more than the files hold.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ordinate.core.checks import need
from ordinate.pretrained.checkpoint_files import CONFIG, CheckpointTensors, SizedTensors, need_weight_dtype

# numbers of layers, each of which has a tensor at least
LAYERS = frozenset(
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
     "decoder_layers", "layers", "source_layers"}
)  # fmt: skip
# sizes that are a dimension of some tensor, or a part of one
DIMENSIONS = frozenset(
    {"hidden_size", "n_embd", "d_model", "intermediate_size", "n_inner", "d_ff", "d_kv", "head_dim", "vocab_size",
     "num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads", "type_vocab_size",
     "decoder_ffn_dim", "encoder_ffn_dim", "decoder_attention_heads",
     "encoder_attention_heads", "rotary_dim", "width", "hidden", "heads", "kv_heads", "head_width", "vocabulary",
     "source_vocabulary", "source_heads", "source_kv_heads", "source_hidden", "embedding_width", "num_channels",
     "num_register_tokens", "pooler_output_size", "embedding_size", "conv_kernel_size", "conv_groups", "ffn_dim",
     "word_embed_proj_dim", "ffn_hidden_size", "num_kv_heads", "num_local_experts", "num_experts",
     "num_experts_per_tok", "moe_intermediate_size", "count", "chosen", "dense_hidden",
     "shared_hidden", "shared_expert_intermediate_size", "shared_intermediate_size", "n_routed_experts",
     "n_shared_experts", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
     "state_size", "n_groups", "conv_kernel", "expand", "attention_heads", "kv_n_heads", "moe_num_experts",
     "moe_top_k", "num_shared_experts", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
     "linear_value_head_dim", "linear_conv_kernel_dim", "dim", "hidden_dim", "mamba_n_heads", "mamba_d_ssm",
     "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "mamba_expand",
     "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "moe_shared_expert_intermediate_size",
     "moe_latent_size", "latent", "conv_L_cache", "linear_head_dim", "linear_num_heads",
     "short_conv_kernel_size", "num_experts_per_token", "intermediate_size_mlp"}
)  # fmt: skip
# quotients of two sizes, which may be fractions
RATIOS = frozenset({"mlp_ratio"})
SIZES = LAYERS | DIMENSIONS | RATIOS
"""Keys whose values are checked."""


def check_sizes(config: Mapping[str, Any], tensors: SizedTensors) -> None:
    """Check that no size of a config.json exceeds what the tensors can have.

    Args:
        config: the contents of config.json, or the shape in it.
        tensors: the tensors; only their shapes are read, those of packed weights as they are when they are unpacked.

    Raises:
        ValueError: a size that is no whole number, a ratio that is no number, one larger than the tensors allow, or a
            list longer than that.
    """
    shapes = tensors.shapes()
    largest = max((size for shape in shapes for size in shape), default=0)
    remedy = "check that config.json belongs to these weights"
    for name, value in config.items():
        if name not in SIZES:
            continue
        limit = len(shapes) if name in LAYERS else largest
        what = f"{limit} tensors" if name in LAYERS else f"no dimension above {limit}"
        # one number for each stage in hierarchical models
        for size in value if isinstance(value, list) else () if value is None else (value,):
            kinds, kind = ((int, float), "number") if name in RATIOS else ((int,), "whole number")
            fits = isinstance(size, kinds) and not isinstance(size, bool)
            need(fits, f"{name} in {CONFIG} must be a {kind}", f"got {_shown(size)}", remedy)
            need(size <= limit, f"{name} in {CONFIG} must fit the weights", f"got {size}; they have {what}", remedy)
    for name, length in _lists(config):
        need(
            length <= max(largest, len(shapes)),
            f"a list in {CONFIG} has at most one value for each layer or channel",
            f"{name} has {length}",
            remedy,
        )


def check_finite(tensors: CheckpointTensors) -> None:
    """Check that all weights of a checkpoint are finite.

    Raises:
        ValueError: NaN or infinity; the message names the tensor.
    """
    for name in tensors:
        tensor = tensors[name]
        if tensor.is_floating_point():
            need_weight_dtype(name, tensor)
        need(
            not tensor.is_floating_point() or bool(tensor.isfinite().all()),
            "weights must be finite numbers",
            f"{name} has {'NaN' if bool(tensor.isnan().any()) else 'infinity'}",
            "take the model of a run that has not diverged, or copy the file again",
        )


def _lists(value: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the length of each list in a config.json, up to one level deep."""
    for name, part in value.items():
        inner = part if isinstance(part, dict) else {}
        for key, one in ((name, part), *inner.items()):
            if isinstance(one, list):
                yield str(key), len(one)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
