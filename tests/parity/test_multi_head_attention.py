"""`MultiHeadAttention` compared with the attention modules of other packages, with the same weights."""

import pytest
import torch

from ordinate import Geometry
from ordinate.models.multi_head_attention import AttentionOptions, MultiHeadAttention
from ordinate.schemes import Rope

WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, TOKENS = 32, 4, 2, 16, 11
SIZES = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_WIDTH,
    "attn_implementation": "eager",
}
# family, class name, configuration, options of our module
FAMILIES = {
    "llama": ("Llama", {}, AttentionOptions(head_width=HEAD_WIDTH)),
    "qwen3": ("Qwen3", {}, AttentionOptions(head_width=HEAD_WIDTH, qk_norm=True)),
    "gemma2": (
        "Gemma2",
        {"query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5, "sliding_window": 4},
        AttentionOptions(head_width=HEAD_WIDTH, scale=24**-0.5, softcap=1.5),
    ),
    "gpt_oss": (
        "GptOss",
        {"sliding_window": 4, "attention_bias": True},
        AttentionOptions(head_width=HEAD_WIDTH, bias=True, sinks=True),
    ),
}


def drawn(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module.double().eval()


def fused(theirs, name):
    return torch.cat([getattr(getattr(theirs, f"{part}_proj"), name) for part in "qkv"])


def converted(theirs, ours):
    """Our module with the weights of an attention module of transformers."""
    weights = {"project.weight": fused(theirs, "weight"), "out.weight": theirs.o_proj.weight}
    if theirs.q_proj.bias is not None:
        weights |= {"project.bias": fused(theirs, "bias"), "out.bias": theirs.o_proj.bias}
    for name in ("q_norm", "k_norm"):
        if hasattr(theirs, name):
            weights[f"{name}.weight"] = getattr(theirs, name).weight
    if hasattr(theirs, "sinks"):
        weights["sinks"] = theirs.sinks
    ours.load_state_dict(weights)
    return ours.double().eval()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_module_matches_transformers(family, layer, record):
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    name, options, variant = FAMILIES[family]
    config = getattr(module, f"{name}Config")(
        **SIZES, **options, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )
    theirs = drawn(getattr(module, f"{name}Attention")(config, layer))
    # layers of Gemma 2 and gpt-oss alternate between windowed and full attention
    window = getattr(theirs, "sliding_window", None)
    ours = converted(
        theirs,
        MultiHeadAttention(
            WIDTH, HEADS, kv_heads=KV_HEADS, scheme=Rope(head_width=HEAD_WIDTH), window=window, variant=variant
        ),
    )
    x, where = torch.randn(2, TOKENS, WIDTH).double(), Geometry.causal(TOKENS, window=window)
    waves = getattr(module, f"{name}RotaryEmbedding")(config)(x, torch.arange(TOKENS)[None])
    hidden = torch.zeros(1, 1, TOKENS, TOKENS).double().masked_fill(~where.visible[None], float("-inf"))
    expected, _ = theirs(x, waves, hidden)
    record(
        ours(x)[0],
        expected,
        scheme="rope",
        oracle=type(theirs).forward,
        what="output of the module, grouped heads" + (", window" if window else ""),
        within=1e-5,
        because="their softmax or their sinusoids are in float32",
    )


@pytest.mark.parametrize("case", ["causal", "full", "context", "padded context"])
def test_the_module_matches_pytorch(case, record):
    theirs = drawn(torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = MultiHeadAttention(WIDTH, HEADS, causal=case == "causal", variant=AttentionOptions(bias=True))
    ours.load_state_dict(
        {
            "project.weight": theirs.in_proj_weight,
            "project.bias": theirs.in_proj_bias,
            "out.weight": theirs.out_proj.weight,
            "out.bias": theirs.out_proj.bias,
        }
    )
    ours.double().eval()
    x = torch.randn(2, TOKENS, WIDTH).double()
    if "context" in case:
        context = torch.randn(2, 7, WIDTH).double()
        real = torch.arange(7) < torch.tensor([[7], [4]])
        padding = None if case == "context" else ~real
        expected, _ = theirs(x, context, context, key_padding_mask=padding)
        y, _ = ours(x, context, None if padding is None else Geometry.cross(TOKENS, 7, real=real))
    else:
        hidden = ~Geometry.causal(TOKENS).visible[0] if case == "causal" else None
        expected, _ = theirs(x, x, x, attn_mask=hidden)
        y, _ = ours(x)
    record(y, expected, scheme="none", oracle=type(theirs).forward, what=f"output of the module, {case}")


def test_a_missing_sink_is_detected():
    module = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    theirs = drawn(module.GptOssAttention(module.GptOssConfig(**SIZES, attention_bias=True), 1))
    build = {"kv_heads": KV_HEADS, "variant": FAMILIES["gpt_oss"][2]}
    ours = converted(theirs, MultiHeadAttention(WIDTH, HEADS, **build))
    x = torch.randn(2, TOKENS, WIDTH).double()
    before, _ = ours(x)
    torch.nn.init.constant_(ours.sinks, -1e9)
    assert (ours(x)[0] - before).abs().max() > 1e-2
