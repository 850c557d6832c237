"""Content-dependent schemes, compared with transformers."""

import pytest
import torch
from torch import nn

from ordinate import Geometry, attend
from ordinate.schemes.deberta import Deberta
from ordinate.schemes.shaw import Shaw
from ordinate.schemes.transformer_xl import TransformerXl


def family(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def configured(name, kind, **options):
    config = getattr(pytest.importorskip(f"transformers.models.{name}.configuration_{name}"), kind)(**options)
    config._attn_implementation = "eager"
    return config


def attended(x, scheme, *projections, width=4):
    """The output of a layer whose attention is computed by Ordinate.

    Args:
        projections: what makes queries, keys and values, and what reads the heads.
        width: channels of a head.
    """
    *made, out = projections
    q, k, v = (make(x).unflatten(-1, (-1, width)).transpose(1, 2) for make in made)
    at = scheme.at(Geometry.full(x.shape[1]))
    return out(attend(q, k, v, at).transpose(1, 2).flatten(2))


def linears(layer):
    return layer.linear_q, layer.linear_k, layer.linear_v, layer.linear_out


def projections(layer):
    return layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj


@torch.no_grad()
def test_shaw_on_keys_matches_wav2vec2_bert(record):
    kind = family("wav2vec2_bert").Wav2Vec2BertSelfAttention
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "attention_dropout": 0.0}
    reach = {"left_max_position_embeddings": 5, "right_max_position_embeddings": 2}
    config = configured(
        "wav2vec2_bert", "Wav2Vec2BertConfig", position_embeddings_type="relative_key", **sizes, **reach
    )
    layer, scheme = kind(config).double().eval(), Shaw(head_width=4, past=5, future=2, values=False).double()
    scheme.keys.copy_(layer.distance_embedding.weight)
    x = torch.randn(2, 11, 12).double()
    record(
        attended(x, scheme, *linears(layer)),
        layer(x)[0],
        scheme="shaw:values=False",
        oracle=kind,
        what="output of a layer",
    )


@torch.no_grad()
def test_transformer_xl_matches_the_conformer(record):
    module = family("wav2vec2_conformer")
    kind = module.Wav2Vec2ConformerSelfAttention
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "attention_dropout": 0.0}
    config = configured("wav2vec2_conformer", "Wav2Vec2ConformerConfig", position_embeddings_type="relative", **sizes)
    layer = kind(config).double().eval()
    scheme = TransformerXl(width=12, heads=3, head_width=4, layout="interleaved").double()
    scheme.content.copy_(layer.pos_bias_u.normal_())
    scheme.position.copy_(layer.pos_bias_v.normal_())
    scheme.project.copy_(layer.linear_pos.weight.view(3, 4, 12))
    x = torch.randn(2, 9, 12).double()
    waves = module.Wav2Vec2ConformerRelPositionalEmbedding(config)(x).double()
    record(
        attended(x, scheme, *linears(layer)),
        layer(x, relative_position_embeddings=waves)[0],
        scheme="transformer_xl:layout=interleaved",
        oracle=kind,
        what="output of a layer",
    )


@torch.no_grad()
@pytest.mark.parametrize("cached", [0, 4])
@pytest.mark.parametrize("clamp", [None, 5])
def test_transformer_xl_matches_xlnet(cached, clamp, record):
    sizes = {"vocab_size": 5, "d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8, "dropout": 0.0}
    model = family("xlnet").XLNetModel(configured("xlnet", "XLNetConfig", clamp_len=clamp or -1, **sizes)).double()
    layer = model.eval().layer[0].rel_attn
    for parameter in layer.parameters():
        parameter.normal_()
    scheme = TransformerXl(width=8, heads=2, head_width=4, max_offset=clamp).double()
    scheme.content.copy_(layer.r_w_bias)
    scheme.position.copy_(layer.r_r_bias)
    scheme.project.copy_(layer.r.permute(1, 2, 0))
    q, k, v = (torch.randn(2, 2, n, 4).double() for n in (7, 7 + cached, 7 + cached))
    waves = model.relative_positional_encoding(7, 7 + cached, bsz=2).double()
    theirs = layer.rel_attn_core(
        *(x.permute(2, 0, 1, 3) for x in (q, k, v)), torch.einsum("ibh,hnd->ibnd", waves, layer.r)
    )
    where = Geometry(torch.arange(cached, 7 + cached)[None, :, None], torch.arange(7 + cached)[None, :, None])
    record(
        attend(q, k, v, scheme.at(where)),
        theirs.permute(1, 2, 0, 3),
        scheme="transformer_xl",
        oracle=layer.rel_attn_core,
        what="output, cached keys, clamped offsets",
    )


@torch.no_grad()
def test_shaw_on_keys_matches_speecht5(record):
    module = family("speecht5")
    layer, table = module.SpeechT5Attention(12, 3).double().eval(), module.SpeechT5RelativePositionalEncoding(4, 6)
    scheme = Shaw(head_width=4, past=5, future=6, values=False).double()
    scheme.keys.copy_(table.pe_k.weight.flip(0))
    x = torch.randn(2, 11, 12).double()
    record(
        attended(x, scheme, *projections(layer)),
        layer(x, position_bias=table.double()(x))[0],
        scheme="shaw:values=False",
        oracle=module.SpeechT5Attention,
        what="output of a layer",
        after="their table in the other direction",
    )


@torch.no_grad()
def test_shaw_on_keys_and_values_matches_vits(record):
    kind = family("vits").VitsAttention
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "window_size": 8, "attention_dropout": 0.0}
    layer, scheme = (
        kind(configured("vits", "VitsConfig", **sizes)).double().eval(),
        Shaw(head_width=4, past=8, future=8),
    )
    scheme.double().keys.copy_(layer.emb_rel_k)
    scheme.values.copy_(layer.emb_rel_v)
    x = torch.randn(2, 9, 12).double()
    record(
        attended(x, scheme, *projections(layer)),
        layer(x)[0],
        scheme="shaw",
        oracle=kind,
        what="output of a layer, texts within its window",
    )


@torch.no_grad()
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_deberta_matches_deberta_v2(terms, record):
    kind = family("deberta_v2").DisentangledSelfAttention
    kinds = ["c2p", "p2c"] if terms == "both" else [terms]
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "position_buckets": 6, "max_relative_positions": 12}
    config = configured("deberta_v2", "DebertaV2Config", relative_attention=True, pos_att_type=kinds, **sizes)
    layer = kind(config).double().eval()
    scheme = Deberta(width=8, heads=2, head_width=4, buckets=6, max_distance=12, terms=terms).double()
    scheme.table.normal_()
    if scheme.key is not None:
        scheme.key.weight.copy_(layer.pos_key_proj.weight)
    if scheme.query is not None:
        scheme.query.load_state_dict(layer.pos_query_proj.state_dict())
    x = torch.randn(2, 20, 8).double()
    record(
        attended(x, scheme, layer.query_proj, layer.key_proj, layer.value_proj, nn.Identity()),
        layer(x, torch.ones(2, 1, 20, 20), rel_embeddings=scheme.table)[0],
        scheme=f"deberta:terms={terms}",
        oracle=kind,
        what="output of a layer",
    )


@torch.no_grad()
@pytest.mark.parametrize("tokens", [5, 20])
def test_deberta_without_buckets_matches_deberta(tokens, record):
    module = family("deberta")
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "max_relative_positions": 7}
    config = configured("deberta", "DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"], **sizes)
    layer = module.DisentangledSelfAttention(config).double().eval()
    scheme = Deberta(width=8, heads=2, head_width=4, buckets=None, max_distance=7).double()
    scheme.table.normal_()
    scheme.key.weight.copy_(layer.pos_proj.weight)
    scheme.query.load_state_dict(layer.pos_q_proj.state_dict())
    x = torch.randn(2, tokens, 8).double()
    offsets = module.build_relative_position(x, x)
    theirs, _ = layer(x, torch.ones(2, 1, tokens, tokens), relative_pos=offsets, rel_embeddings=scheme.table)
    # theirs has one projection for q, k and v of each head
    weights = layer.in_proj.weight.unflatten(0, (2, 3, 4)).transpose(0, 1).flatten(1, 2)
    biases = layer.q_bias, None, layer.v_bias

    def made(part):
        return lambda x: nn.functional.linear(x, weights[part], biases[part])

    record(
        attended(x, scheme, made(0), made(1), made(2), nn.Identity()),
        theirs,
        scheme="deberta:buckets=None",
        oracle=module.DisentangledSelfAttention,
        what="output of a layer",
    )
