import math

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.longformer import Longformer
from ordinate.mixers.softmax import Softmax
from ordinate.ops import blocks
from ordinate.schemes import Alibi, NoPosition, Rope

LEFT = torch.tensor([[True] * 13, [False] * 9 + [True] * 4, [False] * 13])
WHERES = {
    "full": lambda causal: Geometry.causal(13) if causal else Geometry.full(13),
    "one token": lambda causal: Geometry.causal(1) if causal else Geometry.full(1),
    "packed": lambda causal: Geometry.packed([1, 8, 4], causal=causal),
    "left": lambda causal: Geometry.padded(LEFT, causal=causal),
    "right": lambda causal: Geometry.padded(LEFT.flip(1), causal=causal),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # blocks smaller than the texts
    monkeypatch.setattr(blocks, "WINDOW_ROWS", 2)


def formula(mixer, x, scheme, where):
    """The formula of the paper, token by token, each document separately, its first tokens global."""
    batch, tokens, _ = x.shape
    parts = [
        [
            part.unflatten(-1, (-1, mixer.head_width)).transpose(1, 2)
            for part in (x @ weight.T).split(mixer.widths, -1)
        ]
        for weight in (mixer.project.weight, mixer.project_global.weight)
    ]
    (q, k, v), (own_q, own_k, own_v) = ((*scheme.at(where).encode(a, b).pair, c) for a, b, c in parts)
    groups, visible = q.shape[1] // k.shape[1], where.visible.expand(batch, tokens, tokens)
    document = torch.zeros(batch, tokens) if where.q_document is None else where.q_document.expand(batch, tokens)
    place = torch.tensor([[(row[:i] == row[i]).sum() for i in range(tokens)] for row in document])
    rows = []
    for row in range(batch):
        for i in range(tokens):
            sees = visible[row, i].nonzero().flatten()
            is_global = place[row, i] < mixer.global_tokens
            ask, key, value = (own_q, own_k, own_v) if is_global else (q, k, v)
            if not is_global:
                near = (sees - i).abs() < mixer.window
                sees = sees[near | (place[row, sees] < mixer.global_tokens)]
            heads = []
            for head in range(q.shape[1]):
                scores = key[row, head // groups, sees] @ ask[row, head, i] / math.sqrt(mixer.head_width)
                heads.append(scores.softmax(0) @ value[row, head // groups, sees])
            rows.append(torch.cat(heads))
    return torch.stack(rows).unflatten(0, (batch, tokens)) @ mixer.out.weight.T


@pytest.mark.covering(1)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("window", "global_tokens"), [(1, 1), (3, 2), (4, 1), (20, 3), (3, 20)])
@pytest.mark.parametrize("where", WHERES)
def test_it_is_the_formula_forward_and_backward(where, window, global_tokens, causal):
    where, scheme = WHERES[where](causal), Rope(head_width=4)
    mixer = Longformer(width=16, heads=4, kv_heads=2, window=window, global_tokens=global_tokens).double()
    x = torch.randn(3, where.shape[0], 16, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, scheme.at(where))
    plain = formula(mixer, x, scheme, where)
    if where.q_document is not None:
        assert (y[where.q_document.expand(3, -1) < 0] == 0).all()
        plain = plain.masked_fill((where.q_document < 0)[..., None], 0)
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    mine, theirs = (torch.autograd.grad(out.square().sum(), leaves, materialize_grads=True) for out in (y, plain))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_as_long_as_the_text_is_full_attention(causal):
    mixer, usual = (
        Longformer(width=16, heads=4, window=9, global_tokens=2).double(),
        Softmax(width=16, heads=4).double(),
    )
    usual.load_state_dict({name: value for name, value in mixer.state_dict().items() if "global" not in name})
    mixer.project_global.weight.data.copy_(mixer.project.weight)
    x, at = torch.randn(2, 9, 16).double(), Rope(head_width=4).at(WHERES["full"](causal).block(slice(9), slice(9)))
    torch.testing.assert_close(mixer(x, at)[0], usual(x, at)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [[1] * 13, [2, 1, 7, 3], [1, 12], [12, 1]])
def test_decoding_continues_from_a_short_cache(sizes, padded):
    mixer = Longformer(width=16, heads=4, kv_heads=1, window=3, global_tokens=3).double()
    scheme, x = Rope(head_width=4), torch.randn(2, 13, 16).double()
    real = torch.ones(2, 13, dtype=torch.bool)
    real[1, : 4 * padded] = False
    whole = Geometry.padded(real) if padded else Geometry.causal(13)
    expected, _ = mixer(x, scheme.at(whole))
    state, parts, begin = None, [], 0
    for size in sizes:
        end = begin + size
        y, state = mixer(x[:, begin:end], scheme.at(whole.block(slice(begin, end), slice(end))), state)
        assert state.k.shape[2] == min(end, 2)
        parts.append(y)
        begin = end
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=1e-12)
    assert state.tokens.tolist() == real.sum(1).tolist()


def test_a_first_token_carries_far():
    mixer, x = Longformer(width=16, heads=4, window=2).double(), torch.randn(1, 50, 16).double().requires_grad_()
    y, _ = mixer(x, NoPosition().at(Geometry.causal(50)))
    (slope,) = torch.autograd.grad(y[0, 49].sum(), x)
    assert (slope[0] != 0).any(-1).nonzero().flatten().tolist() == [0, 48, 49]


def test_a_global_token_that_counts_twice_is_noticed(monkeypatch):
    where, scheme = Geometry.full(13), Rope(head_width=4)
    mixer = Longformer(width=16, heads=4, window=3, global_tokens=2).double()
    x = torch.randn(1, 13, 16, dtype=torch.float64)
    plain = formula(mixer, x, scheme, where)
    whole = Longformer._near
    twice = lambda self, q, near, shared, place, causal: whole(self, q, near, shared, place + 2, causal)  # noqa: E731
    monkeypatch.setattr(Longformer, "_near", twice)
    assert not torch.allclose(mixer(x, scheme.at(where))[0], plain, atol=1e-6)


@pytest.mark.parametrize("global_tokens", [1, 3])
def test_it_is_that_of_transformers(global_tokens, monkeypatch):
    monkeypatch.setattr(blocks, "WINDOW_ROWS", 64)
    theirs = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    from transformers import LongformerConfig

    config = LongformerConfig(
        hidden_size=32, num_attention_heads=4, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    oracle = theirs.LongformerSelfAttention(config, 0).eval()
    mixer = Longformer(width=32, heads=4, window=5, global_tokens=global_tokens)
    with torch.no_grad():
        for name in ("query", "key", "value", "query_global", "key_global", "value_global"):
            getattr(oracle, name).bias.zero_()
        mixer.project.weight.copy_(torch.cat([getattr(oracle, name).weight for name in ("query", "key", "value")]))
        own = [getattr(oracle, f"{name}_global").weight for name in ("query", "key", "value")]
        mixer.project_global.weight.copy_(torch.cat(own))
        mixer.out.weight.copy_(torch.eye(32))
    x = torch.randn(2, 64, 32)
    real = torch.ones(2, 64, dtype=torch.bool)
    real[1, 40:] = False
    is_global = (torch.arange(64) < global_tokens).expand(2, -1)
    mask = torch.where(is_global, 10000.0, torch.where(real, 0.0, -10000.0))
    with torch.no_grad():
        masks = {"is_index_masked": mask < 0, "is_index_global_attn": mask > 0, "is_global_attn": True}
        (expected,) = oracle(x, attention_mask=mask, **masks)
        y, _ = mixer(x, NoPosition().at(Geometry.padded(real, causal=False)))
    assert (y - expected).abs().max() <= 4e-7
    # a window of another size is noticed
    mixer.window = 4
    assert (mixer(x, NoPosition().at(Geometry.padded(real, causal=False)))[0] - expected).abs().max() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
def test_a_number_that_is_not_finite_reaches_who_sees_it_and_no_others(causal):
    mixer, scheme = Longformer(width=16, heads=4, kv_heads=2, window=3), Rope(head_width=4)
    x = torch.randn(1, 23, 16)
    at = scheme.at(Geometry.causal(23) if causal else Geometry.full(23))
    whole, _ = mixer(x, at)
    for bad in (float("nan"), float("inf")):
        x[0, 10] = bad
        y, _ = mixer(x, at)
        felt = y.isnan().any(-1)[0]
        # the global token sees all where all see all
        assert felt.nonzero().flatten().tolist() == ([10, 11, 12] if causal else [0, 8, 9, 10, 11, 12])
        torch.testing.assert_close(y[0, ~felt], whole[0, ~felt])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"window": 0}, "a window holds at least the token itself; got 0"),
        ({"global_tokens": 0}, "global_tokens must be above zero; got 0"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Longformer(width=16, heads=4, **options)


def test_a_bias_is_not_ignored_without_a_word():
    with pytest.raises(ValueError, match="mixer 'longformer' does not support hook 'bias', used by scheme 'alibi'"):
        Longformer.check_scheme(Alibi(heads=4))
