import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes.transformer_xl import TransformerXl
from ordinate.testing import check_scheme

WIDTH, HEADS, HEAD_WIDTH = 6, 2, 3


def born(**options):
    scheme = TransformerXl(width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH, **options).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn_like(parameter))
    return scheme


def waves(offset, width, theta, layout):
    # section 3.3: the sinusoids of Vaswani et al., which the published code puts behind each other
    pairs = [offset * theta ** (-2 * m / width) for m in range(width // 2)]
    if layout == "half":
        return [math.sin(angle) for angle in pairs] + [math.cos(angle) for angle in pairs]
    return [wave for angle in pairs for wave in (math.sin(angle), math.cos(angle))]


def published(q, k, scheme, positions, theta=10_000.0, layout="half", max_offset=None):
    # the four terms of equation A^rel, one number at a time; the first is q.k itself
    batch, heads, tokens, width = q.shape
    scores = []
    for b in range(batch):
        for h in range(heads):
            for i in range(tokens):
                for j in range(tokens):
                    offset = positions[b][i] - positions[b][j]
                    if max_offset is not None:
                        offset = max(-max_offset, min(offset, max_offset))
                    wave = waves(offset, WIDTH, theta, layout)
                    key = [sum(scheme.project[h, c, m] * wave[m] for m in range(WIDTH)) for c in range(width)]
                    terms = [
                        q[b, h, i, c] * key[c] + scheme.content[h, c] * k[b, h, j, c] + scheme.position[h, c] * key[c]
                        for c in range(width)
                    ]
                    scores.append(sum(terms) / math.sqrt(width))
    return torch.stack(scores).reshape(batch, heads, tokens, tokens)


@pytest.mark.parametrize(
    "options", [{}, {"layout": "interleaved", "theta": 50.0}, {"max_offset": 3.0}, {"max_offset": 2.5}]
)
@pytest.mark.parametrize("whole", [True, False])
def test_scores_and_their_gradients_equal_the_paper_number_by_number(options, whole):
    scheme = born(**options)
    q, k = (torch.randn(2, HEADS, 4, HEAD_WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(2))
    positions = [[0, 1, 5, 30], [4, 4, 2, 0]] if whole else [[0.0, 0.5, 7.25, -2.0], [1.0, 3.0, 3.5, 10.0]]
    pos = torch.tensor(positions)[..., None] if whole else torch.tensor(positions, dtype=torch.float64)[..., None]
    bias = scheme.content_bias(q, k, Geometry.from_positions(pos, causal=False))
    expected = published(q, k, scheme, positions, **options)
    torch.testing.assert_close(bias, expected, rtol=0, atol=1e-12)
    upstream, leaves = torch.randn_like(bias), [q, k, *scheme.parameters()]
    ours, theirs = (torch.autograd.grad(made, leaves, upstream) for made in (bias, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_scores_depend_on_the_offset_alone_however_far():
    scheme = born().float()
    q, k = torch.randn(2, 1, HEADS, 6, HEAD_WIDTH)
    near, far = (Geometry.from_positions(torch.arange(6)[None, :, None] + start) for start in (0, 2**24 + 1))
    one, other = scheme.content_bias(q, k, near), scheme.content_bias(q, k, far)
    assert (one - other).abs().max() < 1e-5


def test_clamped_offsets_beyond_the_clamp_are_all_alike():
    scheme = born(max_offset=2.0)
    q = torch.randn(1, HEADS, 1, HEAD_WIDTH, dtype=torch.float64).expand(-1, -1, 9, -1)
    bias = scheme.content_bias(q, torch.zeros_like(q), Geometry.full(9))[0, 0]
    assert bias[8, 0] == bias[8, 5] == bias[3, 0] != bias[2, 1]
    assert bias[0, 8] == bias[0, 3] == bias[5, 8] != bias[8, 0]
    assert abs(bias[2, 0] - bias[8, 0]) < 1e-12


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"layout": "interleaved"}, {"max_offset": 3.0}, {"theta": 100.0}])
def test_every_promise_of_a_scheme_holds(options):
    broken = {came.name: came.message for came in check_scheme(TransformerXl, **options) if came.message}
    assert broken == {}


def test_the_width_must_be_even():
    with pytest.raises(
        ValueError,
        match="each frequency has a sine and a cosine, so the width must be even; got 7; choose an even width",
    ):
        TransformerXl(width=7, heads=1, head_width=7)


def test_an_unknown_layout_is_refused(untyped):
    with pytest.raises(
        ValueError, match="no layout is named 'halves'; there are: half, interleaved; did you mean 'half'"
    ):
        born(layout="halves")


@pytest.mark.parametrize("name", ["width", "heads", "head_width", "theta", "max_offset"])
def test_sizes_and_options_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        TransformerXl(**{"width": 4, "heads": 2, "head_width": 2, name: 0})


@pytest.mark.parametrize("cached", [0, 4])
@pytest.mark.parametrize("clamp", [None, 5])
def test_it_agrees_with_xlnet_in_transformers(cached, clamp):
    modeling = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    configuration = pytest.importorskip("transformers.models.xlnet.configuration_xlnet")
    config = configuration.XLNetConfig(
        vocab_size=5, d_model=8, n_layer=1, n_head=2, d_inner=8, dropout=0.0, clamp_len=clamp or -1
    )
    model = modeling.XLNetModel(config).double().eval()
    layer = model.layer[0].rel_attn
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    scheme = TransformerXl(width=8, heads=2, head_width=4, max_offset=clamp).double()
    scheme.content.data.copy_(layer.r_w_bias)
    scheme.position.data.copy_(layer.r_r_bias)
    scheme.project.data.copy_(layer.r.permute(1, 2, 0))
    q = torch.randn(2, 7, 2, 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, 7 + cached, 2, 4, dtype=torch.float64)
    # their sinusoids are made in float32
    sinusoids = model.relative_positional_encoding(7, 7 + cached, bsz=2).double()
    by_token = [part.transpose(0, 1) for part in (q, k, v)]
    key_r = torch.einsum("ibh,hnd->ibnd", sinusoids, layer.r)
    theirs = layer.rel_attn_core(*by_token, key_r).transpose(0, 1)
    where = Geometry(torch.arange(cached, 7 + cached)[None, :, None], torch.arange(7 + cached)[None, :, None])
    ours = attend(*(part.transpose(1, 2) for part in (q, k, v)), scheme.at(where)).transpose(1, 2)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_it_agrees_with_the_conformer_in_transformers():
    modeling = pytest.importorskip("transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer")
    configuration = pytest.importorskip("transformers.models.wav2vec2_conformer.configuration_wav2vec2_conformer")
    config = configuration.Wav2Vec2ConformerConfig(
        hidden_size=12, num_attention_heads=3, position_embeddings_type="relative", attention_dropout=0.0
    )
    config._attn_implementation = "eager"
    layer = modeling.Wav2Vec2ConformerSelfAttention(config).double().eval()
    embedding = modeling.Wav2Vec2ConformerRelPositionalEmbedding(config)
    scheme = TransformerXl(width=12, heads=3, head_width=4, layout="interleaved").double()
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    with torch.no_grad():
        layer.pos_bias_u.normal_()
        layer.pos_bias_v.normal_()
        scheme.content.copy_(layer.pos_bias_u)
        scheme.position.copy_(layer.pos_bias_v)
        scheme.project.copy_(layer.linear_pos.weight.view(3, 4, 12))
        theirs, _ = layer(x, relative_position_embeddings=embedding(x).double())
        q, k, v = (
            made(x).unflatten(-1, (3, 4)).transpose(1, 2) for made in (layer.linear_q, layer.linear_k, layer.linear_v)
        )
        ours = layer.linear_out(attend(q, k, v, scheme.at(Geometry.full(9))).transpose(1, 2).flatten(2))
    # their sinusoids are made in float32
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_vectors_for_another_model_are_refused(untyped):
    q, k = torch.randn(2, 1, HEADS + 1, 4, HEAD_WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match="must have as many heads as the queries, or one, and their head width; got"):
        born().content_bias(q, k, Geometry.causal(4))
