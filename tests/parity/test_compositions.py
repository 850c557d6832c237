import pytest
import torch

from ordinate import Geometry
from ordinate.schemes._spec import SchemeSpec

SIZES = {"layers": 4, "heads": 4, "kv_heads": 2, "head_width": 12, "width": 48}


@torch.no_grad()
def test_per_layer_schemes_match_smollm3(attention, record):
    smollm3 = pytest.importorskip("transformers.models.smollm3")
    config = smollm3.configuration_smollm3.SmolLM3Config(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=40,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        no_rope_layers=[1, 1, 1, 0],
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        pad_token_id=0,
    )
    model = smollm3.modeling_smollm3.SmolLM3ForCausalLM(config).double().eval()
    ids = torch.randint(1, 50, (2, 17))
    theirs = model(ids, use_cache=False).logits
    old = [layer.self_attn for layer in model.model.layers]

    def ours(plan):
        recipe = SchemeSpec(plan).build(SIZES)
        for block, was, scheme in zip(model.model.layers, old, recipe.scheme_of_layer, strict=True):
            pairs = [(part.weight, None) for part in (was.q_proj, was.k_proj, was.v_proj)]
            block.self_attn = attention(pairs, was.o_proj, recipe.schemes[scheme], 12)
        return model(ids, use_cache=False).logits

    plan = "rope,rope,rope,none"
    record(ours(plan), theirs, scheme=plan, oracle=type(model), what="logits of a tiny random model")
    assert (ours("none,none,none,rope") - theirs).abs().max() > 0.1 * theirs.abs().max()


def test_alibi_on_half_of_the_heads_matches_x_transformers(record):
    kind = pytest.importorskip("x_transformers.x_transformers").AlibiPositionalBias
    scheme = SchemeSpec("alibi/none").build({**SIZES, "heads": 8, "kv_heads": 8}).schemes[0]
    record(
        scheme.bias(Geometry.full(20))[0],
        kind(4, total_heads=8)(20, 20),
        scheme="alibi/none",
        oracle=kind,
        what="bias",
        after="their `total_heads` is all heads",
    )


@torch.no_grad()
def test_length_scaling_of_layers_without_positions_matches_llama4(attention, record):
    llama4 = pytest.importorskip("transformers.models.llama4")
    config = llama4.configuration_llama4.Llama4TextConfig(
        hidden_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        num_hidden_layers=1,
        no_rope_layers=[0],
        floor_scale=8,
        attn_scale=0.1,
        attn_temperature_tuning=True,
        layer_types=["full_attention"],
    )
    config._attn_implementation = "sdpa"
    kind, x = llama4.modeling_llama4.Llama4TextAttention, torch.randn(2, 40, 48).double()
    layer = kind(config, 0).double().eval()
    pairs = [(part.weight, None) for part in (layer.q_proj, layer.k_proj, layer.v_proj)]
    scheme = SchemeSpec("log_length:form=llama4,trained_length=8").build(SIZES).schemes[0]
    ours, _ = attention(pairs, layer.o_proj, scheme, 12)(x)
    record(ours, layer(x, None, None)[0], scheme="log_length:form=llama4", oracle=kind, what="output of a layer")
