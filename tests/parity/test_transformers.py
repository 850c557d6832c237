import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import T5, Alibi, Learned, NoPosition, Rope, Sinusoidal

POSITIONS = torch.arange(50)[None, :, None]


def family(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def configured(name, kind, **options):
    module = pytest.importorskip(f"transformers.models.{name}.configuration_{name}")
    return getattr(module, kind)(**options)


def waves(scheme, pos=POSITIONS):
    """What a scheme adds to zero embeddings."""
    return scheme.embed(torch.zeros(1, pos.shape[1], scheme.width), pos)[0]


@pytest.mark.extended
def test_attention_without_positions_matches(record):
    llama = family("llama")
    layer = llama.LlamaAttention(configured("llama", "LlamaConfig", num_attention_heads=4, num_key_value_heads=2), 0)
    q, k, v = (torch.randn(2, heads, 9, 16).double() for heads in (4, 2, 2))
    where = Geometry.causal(9)
    hidden = torch.zeros(9, 9).double().masked_fill(~where.visible[0], float("-inf"))
    theirs, _ = llama.eager_attention_forward(layer.double().eval(), q, k, v, hidden[None, None], scaling=0.25)
    ours = attend(q, k, v, NoPosition().at(where))
    # theirs computes the softmax in float32
    record(ours.transpose(1, 2), theirs, scheme="none", oracle=llama.eager_attention_forward, what="output, grouped")


@pytest.mark.parametrize("width", [8, 33, 64])
def test_tensor2tensor_sinusoids_match_m2m100(width, record):
    kind = family("m2m_100").M2M100SinusoidalPositionalEmbedding
    odd = "zero_pad" if width % 2 else None
    record(
        waves(Sinusoidal(width=width, form="tensor2tensor", odd_width=odd)),
        kind.get_embedding(50, width),
        scheme="sinusoidal:form=tensor2tensor" + (",odd=zero_pad" if odd else ""),
        oracle=kind.get_embedding,
        what="table",
        within=1e-5,
        because="their angles are in float32",
    )


def test_positions_of_m2m100_start_after_the_padding_index(record):
    kind = family("m2m_100").M2M100SinusoidalPositionalEmbedding
    ids = torch.full((1, 50), 5)
    record(
        waves(Sinusoidal(width=64, form="tensor2tensor", position_offset=2)),
        kind(60, 64, padding_idx=1)(ids)[0],
        scheme="sinusoidal:form=tensor2tensor,position_offset=2",
        oracle=kind.forward,
        what="table",
        within=1e-5,
        because="their angles are in float32",
    )


@pytest.mark.parametrize("name", ["marian", "roformer"])
@pytest.mark.parametrize("width", [8, 64])
def test_concatenated_sinusoids_match_marian_and_roformer(name, width, record):
    kind = getattr(family(name), f"{name.title().replace('f', 'F')}SinusoidalPositionalEmbedding")
    record(
        waves(Sinusoidal(width=width, form="concatenated")),
        kind(50, width).create_weight(),
        scheme="sinusoidal:form=concatenated",
        oracle=kind.create_weight,
        what="table",
    )


@pytest.mark.parametrize("width", [8, 64])
def test_sinusoids_of_the_paper_match_marian_up_to_column_order(width, record):
    kind = family("marian").MarianSinusoidalPositionalEmbedding
    ours = waves(Sinusoidal(width=width))
    record(
        torch.cat([ours[:, 0::2], ours[:, 1::2]], 1),
        kind(50, width).create_weight(),
        scheme="sinusoidal",
        oracle=kind.create_weight,
        what="table",
        after="our even columns, then our odd ones",
    )


def test_a_learned_table_matches_opt_from_the_third_row(record):
    kind = family("opt").OPTLearnedPositionalEmbedding
    theirs, scheme = kind(50, 16), Learned(width=16, max_length=50)
    with torch.no_grad():
        scheme.table.copy_(theirs.weight[2:])
    real = torch.ones(2, 50, dtype=torch.long)
    real[1, :7] = 0
    where = Geometry.padded(real.bool())
    tokens = real.bool()[..., None]
    record(
        scheme.embed(torch.zeros(2, 50, 16), where.q_pos) * tokens,
        theirs(real) * tokens,
        scheme="learned",
        oracle=kind.forward,
        what="table, left padding",
        after="our row 0 is their row 2",
    )


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_rotation_in_half_layout_matches_llama_and_gpt_neox(name, theta, record):
    module = family(name)
    title = {"llama": "Llama", "gpt_neox": "GPTNeoX"}[name]
    rope = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 1.0}
    config = configured(name, f"{title}Config", hidden_size=64, num_attention_heads=2, rope_parameters=rope)
    q, k = torch.randn(2, 1, 2, 50, 32)
    cos, sin = getattr(module, f"{title}RotaryEmbedding")(config)(q, POSITIONS[..., 0])
    theirs = module.apply_rotary_pos_emb(q, k, cos, sin)
    ours = Rope(head_width=32, theta=theta).at(Geometry.causal(50)).encode(q, k).pair
    record(
        torch.stack(ours),
        torch.stack(theirs),
        scheme="rope",
        oracle=module.apply_rotary_pos_emb,
        what="queries and keys",
        within=1e-5,
        because="their angles are in float32",
    )


def test_rotation_in_interleaved_layout_matches_gptj(record):
    gptj, q = family("gptj"), torch.randn(1, 2, 50, 32)
    sin, cos = gptj.create_sinusoidal_positions(50, 32)[None].chunk(2, -1)
    record(
        Rope(head_width=32, layout="interleaved").encode_query(q, POSITIONS),
        gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin, cos).transpose(1, 2),
        scheme="rope:layout=interleaved",
        oracle=gptj.apply_rotary_pos_emb,
        what="queries",
        within=1e-5,
        because="their angles are in float32",
    )


def test_deepseek_rotates_interleaved_channels_and_returns_half_layout(record):
    from ordinate.ops.layouts import convert_channels

    deepseek, llama = family("deepseek_v3"), family("llama")
    q, k = torch.randn(2, 1, 2, 50, 32)
    config = configured("llama", "LlamaConfig", hidden_size=64, num_attention_heads=2)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, POSITIONS[..., 0])
    theirs = deepseek.apply_rotary_pos_emb_interleave(q, k, cos, sin)
    ours = Rope(head_width=32, layout="interleaved").at(Geometry.causal(50)).encode(q, k).pair
    record(
        convert_channels(torch.stack(ours), to="half"),
        torch.stack(theirs),
        scheme="rope:layout=interleaved",
        oracle=deepseek.apply_rotary_pos_emb_interleave,
        what="queries and keys",
        after="`convert_channels(..., to='half')` of ours",
        within=1e-5,
        because="their angles are in float32",
    )


def of_the_last_key(bias, visible):
    """A bias minus that of each row's newest visible key: softmax is invariant to a constant per row."""
    newest = bias.diagonal(dim1=-2, dim2=-1)[..., None]
    return (bias - newest).masked_fill(~visible, 0.0)


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 40])
def test_alibi_matches_bloom_up_to_a_constant_per_row(heads, record):
    build = family("bloom").build_alibi_tensor
    real = torch.ones(2, 20, dtype=torch.long)
    real[1, :6] = 0
    where = Geometry.padded(real.bool())
    visible = where.visible[:, None]
    theirs = build(real, heads, torch.float32).view(2, heads, 1, 20).expand(-1, -1, 20, -1)
    record(
        Alibi(heads=heads).bias(where).masked_fill(~visible, 0.0).expand(2, -1, -1, -1),
        of_the_last_key(theirs, visible),
        scheme="alibi",
        oracle=build,
        what="bias, left padding",
        after="their bias minus that of each query's own key, a constant per row",
    )


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 40])
def test_alibi_matches_mpt_up_to_a_constant_per_row(heads, record):
    build, where = family("mpt").build_mpt_alibi_tensor, Geometry.causal(20)
    visible = where.visible[:, None]
    record(
        Alibi(heads=heads).bias(where).masked_fill(~visible, 0.0),
        of_the_last_key(build(heads, 20)[None].expand(-1, -1, 20, -1), visible),
        scheme="alibi",
        oracle=build,
        what="bias",
        after="their bias minus that of each query's own key, a constant per row",
    )


@pytest.mark.parametrize("heads", [2, 8, 16])
def test_alibi_matches_falcon_up_to_a_constant_per_row(heads, record):
    build, where = family("falcon").build_alibi_tensor, Geometry.causal(20)
    visible = where.visible[:, None]
    theirs = build(torch.ones(1, 20, dtype=torch.long), heads, torch.float32).view(1, heads, 1, 20)
    record(
        Alibi(heads=heads).bias(where).masked_fill(~visible, 0.0),
        of_the_last_key(theirs.expand(-1, -1, 20, -1), visible),
        scheme="alibi",
        oracle=build,
        what="bias",
        after="their bias minus that of each query's own key, a constant per row",
        within=4e-3,
        because="their slopes are rounded to bfloat16",
    )


@pytest.mark.parametrize(("heads", "flattest"), [(8, 8), (12, 8), (12, 4)])
def test_alibi_without_a_mask_matches_mpt(heads, flattest, record):
    build = family("mpt").build_mpt_alibi_tensor
    ours = Alibi(heads=heads, min_slope_exponent=flattest, direction="signed").bias(Geometry.full(20))
    record(
        ours - ours[..., -1:],
        build(heads, 20, alibi_bias_max=flattest)[None].expand(-1, -1, 20, -1),
        scheme="alibi:direction=signed",
        oracle=build,
        what="bidirectional bias",
        after="our bias minus that of the last key, a constant per row",
    )


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000)])
def test_t5_matches(both_sides, buckets, max_distance, record):
    config = configured(
        "t5",
        "T5Config",
        d_model=8,
        d_kv=4,
        num_heads=2,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not both_sides,
    )
    layer = family("t5").T5Attention(config, has_relative_attention_bias=True)
    scheme = T5(heads=2, buckets=buckets, max_distance=max_distance)
    with torch.no_grad():
        scheme.table.copy_(layer.relative_attention_bias.weight)
    where = Geometry.full(1500) if both_sides else Geometry.causal(1500)
    where = where.block(slice(700, 703))
    theirs = layer.compute_bias(1500, 1500)[:, :, 700:703]
    record(scheme.bias(where), theirs, scheme="t5", oracle=layer.compute_bias, what="bias")
