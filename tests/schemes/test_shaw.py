import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes.shaw import Shaw
from ordinate.testing import check_scheme

POSITIONS = [[0, 1, 3, 4, 20], [7, 2, 9, 9, 0]]


def born(**options):
    return Shaw(head_width=3, heads=2, **options).double()


def drawn(batch, heads, tokens, width, *, kinds=3):
    tensors = torch.randn(kinds, batch, heads, tokens, width, dtype=torch.float64)
    return [part.clone().requires_grad_() for part in tensors]


def clipped(offset, past, future):
    return max(-future, min(offset, past))


def published(q, k, v, keys, values, positions, visible, past, future, per_head):
    # equations 3 to 5 of the paper, one number at a time
    batch, heads, tokens, width = q.shape
    rows = []
    for b in range(batch):
        for h in range(heads):
            own = h if per_head else 0
            for i in range(tokens):
                seen = [j for j in range(tokens) if visible[b][i][j]]
                place = {j: past - clipped(positions[b][i] - positions[b][j], past, future) for j in seen}
                e = [
                    sum(q[b, h, i, c] * (k[b, h, j, c] + keys[own, place[j], c]) for c in range(width))
                    / math.sqrt(width)
                    for j in seen
                ]
                weights = torch.stack(e).exp() / torch.stack(e).exp().sum()
                for c in range(width):
                    carried = [v[b, h, j, c] + (values[own, place[j], c] if values is not None else 0) for j in seen]
                    rows.append(sum(weights[n] * carried[n] for n in range(len(seen))))
    return torch.stack(rows).reshape(q.shape)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"past": 2, "future": 1}, {"past": 3, "future": 0, "per_head": True}, {"past": 1, "values": False}],
)
def test_attention_and_its_gradients_equal_the_paper_number_by_number(options, causal):
    scheme = born(**options)
    q, k, v = drawn(2, 2, 5, 3)
    where = Geometry.from_positions(torch.tensor(POSITIONS)[..., None], causal=causal)
    out = attend(q, k, v, scheme.at(where), backend="reference")
    visible = where.visible.expand(2, -1, -1).tolist()
    reach = scheme.past, scheme.future, options.get("per_head", False)
    expected = published(q, k, v, scheme.keys, scheme.values, POSITIONS, visible, *reach)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    upstream, leaves = torch.randn_like(out), [q, k, v, *scheme.parameters()]
    ours, theirs = (torch.autograd.grad(made, leaves, upstream) for made in (out, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_distances_beyond_the_reach_share_a_vector():
    scheme = born(past=2, future=1)
    q, k = drawn(1, 2, 5, 3, kinds=2)
    q = q[:, :, :1].expand(-1, -1, 5, -1)
    bias = scheme.content_bias(q, k, Geometry.from_positions(torch.tensor([[0, 1, 2, 3, 9]])[..., None]))[0, 0]
    assert bias[4, 0] == bias[4, 3] == bias[3, 0] == bias[2, 0] != bias[1, 0]
    assert bias[0, 1] == bias[0, 4] == bias[3, 4] != bias[0, 0]


def test_distances_are_exact_far_from_the_beginning():
    scheme = born(past=3, future=3).float()
    q, k = (part.float() for part in drawn(1, 2, 4, 3, kinds=2))
    near, far = (Geometry.from_positions(torch.arange(4)[None, :, None] + start) for start in (0, 2**24 + 1))
    assert scheme.content_bias(q, k, near).equal(scheme.content_bias(q, k, far))


@pytest.mark.extended
@pytest.mark.parametrize("options", [{}, {"per_head": True}, {"values": False}, {"past": 2, "future": 0}])
def test_every_promise_of_a_scheme_holds(options):
    broken = {came.name: came.message for came in check_scheme(Shaw, **options) if came.message}
    assert broken == {}


def test_without_values_it_uses_the_scores_alone():
    assert born().hooks == ("content_bias", "value_bias")
    assert born(values=False).hooks == ("content_bias",)
    assert born(values=False).value_bias(torch.ones(1, 2, 1, 1), Geometry.causal(1)) is None


@pytest.mark.parametrize("per_head", [True, False])
def test_a_longer_reach_changes_nothing_until_it_is_trained(per_head):
    scheme = born(past=3, future=1, per_head=per_head)
    longer = scheme.resized(past=7, future=4)
    assert longer.keys.shape[1] == 12
    q, k, v = drawn(1, 2, 12, 3)
    where = Geometry.full(12)
    outs = [attend(q, k, v, made.at(where), backend="reference") for made in (scheme, longer)]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-14)


def test_a_shorter_reach_keeps_the_near_vectors():
    scheme = born(past=3, future=3, values=False)
    shorter = scheme.resized(past=1, future=2)
    assert shorter.keys.equal(scheme.keys[:, 2:6])
    assert shorter.values is None


def test_another_reach_has_vectors_of_its_own():
    scheme = born()
    longer = scheme.resized(past=16, future=16)
    assert longer.keys.equal(scheme.keys)
    assert longer.keys.data_ptr() != scheme.keys.data_ptr()
    assert longer.values.requires_grad


@pytest.mark.parametrize("side", ["past", "future"])
def test_the_reach_must_not_be_negative(side):
    with pytest.raises(ValueError, match=f"{side} must not be negative; got -1; give 0 or more tokens"):
        Shaw(head_width=4, **{side: -1})
    with pytest.raises(ValueError, match=f"{side} must not be negative; got -2"):
        born().resized(**{"past": 1, "future": 1, side: -2})


def test_vectors_for_each_head_need_the_number_of_heads():
    with pytest.raises(
        ValueError, match="per_head=True needs the number of heads; got heads=None; give heads, or per_head=False"
    ):
        Shaw(head_width=4, per_head=True)


def test_the_head_width_must_be_above_zero():
    with pytest.raises(ValueError, match="head_width must be above zero; got 0"):
        Shaw(head_width=0)


@pytest.mark.parametrize("options", [{"head_width": 4}, {"head_width": 3, "heads": 5, "per_head": True}])
def test_a_table_for_another_model_is_refused(options, untyped):
    q, k = drawn(1, 2, 4, 3, kinds=2)
    with pytest.raises(ValueError, match="relative position vectors must have as many heads as the queries, or one"):
        Shaw(**options).double().content_bias(q, k, Geometry.causal(4))


def test_fractional_positions_are_refused():
    with pytest.raises(ValueError, match="Shaw takes integer positions; got torch"):
        born().at(Geometry.from_positions(torch.rand(1, 3, 1)))


def test_it_agrees_with_transformers():
    bert = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    configuration = pytest.importorskip("transformers.models.wav2vec2_bert.configuration_wav2vec2_bert")
    config = configuration.Wav2Vec2BertConfig(
        hidden_size=12,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=5,
        right_max_position_embeddings=2,
        attention_dropout=0.0,
    )
    config._attn_implementation = "eager"
    layer = bert.Wav2Vec2BertSelfAttention(config).double().eval()
    scheme = Shaw(head_width=4, past=5, future=2, values=False).double()
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    with torch.no_grad():
        scheme.keys.copy_(layer.distance_embedding.weight)
        theirs, _ = layer(x)
        q, k, v = (
            made(x).unflatten(-1, (3, 4)).transpose(1, 2) for made in (layer.linear_q, layer.linear_k, layer.linear_v)
        )
        ours = layer.linear_out(attend(q, k, v, scheme.at(Geometry.full(11))).transpose(1, 2).flatten(2))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
