import math
from contextlib import contextmanager

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape, attend
from ordinate.mixers import Softmax
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.ops.buckets import signed_log_buckets
from ordinate.schemes import Learned
from ordinate.schemes._composition import Sum
from ordinate.schemes.deberta import Deberta, DebertaVersion
from ordinate.testing import check_scheme

WIDTH, HEADS, HEAD_WIDTH = 5, 2, 3
POSITIONS = [[0, 1, 9, 4], [30, 2, 2, 0]]


def made(width=WIDTH, head_width=HEAD_WIDTH, **options):
    version = {name: options.pop(name) for name in vars(DebertaVersion()) if name in options}
    return Deberta(width=width, heads=HEADS, head_width=head_width, version=DebertaVersion(**version), **options)


def born(**options):
    scheme = made(**options).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(torch.randn_like(parameter))
    return scheme


def bucketed(offset, buckets, max_distance):
    # make_log_bucket_position of the published code, for one number
    middle = buckets // 2
    if abs(offset) <= middle:
        return offset
    base = math.log((max_distance - 1) / middle) if max_distance > 1 else -math.inf
    grown = math.log(abs(offset) / middle) / base * (middle - 1)
    return int(math.copysign(math.ceil(grown - 1e-9) + middle, offset))


def published(q, k, scheme, buckets, max_distance, terms="both", mirrored=False, rescale=True):
    # equations 3 and 4 of the paper, one number at a time: the whole score
    span = buckets or max_distance
    count = 3 if terms == "both" else 2
    root = math.sqrt(count * HEAD_WIDTH if rescale else HEAD_WIDTH)

    def row(offset):
        bucket = bucketed(offset, buckets, max_distance) if buckets else offset
        return min(max(bucket + span, 0), 2 * span - 1)

    def projected(project, h, c, at):
        channel = h * HEAD_WIDTH + c
        made = sum(project.weight[channel, m] * scheme.table[at, m] for m in range(WIDTH))
        return made if project.bias is None else made + project.bias[channel]

    scores = []
    for b, places in enumerate(POSITIONS):
        for h in range(HEADS):
            for i, p in enumerate(places):
                for j, r in enumerate(places):
                    score = 0
                    for c in range(HEAD_WIDTH):
                        score = score + q[b, h, i, c] * k[b, h, j, c]
                        if terms != "p2c":
                            score = score + q[b, h, i, c] * projected(scheme.key, h, c, row(p - r))
                        if terms != "c2p":
                            away = r - p if mirrored else p - r
                            score = score + k[b, h, j, c] * projected(scheme.query, h, c, row(away))
                    scores.append(score / root)
    return torch.stack(scores).reshape(len(POSITIONS), HEADS, 4, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": 6, "max_distance": 12},
        {"buckets": None, "max_distance": 5},
        {"buckets": 6, "max_distance": 12, "terms": "c2p"},
        {"buckets": 6, "max_distance": 12, "terms": "p2c"},
        {"buckets": None, "max_distance": 5, "mirrored": True},
        {"buckets": 6, "max_distance": 12, "rescale": False},
        {"buckets": 6, "max_distance": 12, "terms": "p2c", "mirrored": True, "rescale": False},
        {"buckets": 5, "max_distance": 12},
        {"buckets": 2, "max_distance": 12},
        {"buckets": 8, "max_distance": 2, "unordered": True},
    ],
)
def test_scores_and_their_gradients_equal_the_paper_number_by_number(options):
    scheme = born(**options)
    shape = len(POSITIONS), HEADS, 4, HEAD_WIDTH
    q, k = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    where = Geometry.from_positions(torch.tensor(POSITIONS)[..., None], causal=False)
    encoded = scheme.encode_query(q, where.q_pos)
    scores = encoded @ k.mT / math.sqrt(HEAD_WIDTH) + scheme.content_bias(encoded, k, where)
    expected = published(q, k, scheme, **{name: x for name, x in options.items() if name != "unordered"})
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-12)
    upstream, leaves = torch.randn_like(scores), [q, k, *scheme.parameters()]
    ours, theirs = (torch.autograd.grad(made, leaves, upstream) for made in (scores, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_golden_buckets():
    offsets = [-600, -300, -129, -128, -1, 0, 1, 127, 128, 129, 200, 300, 511]
    expected = [-270, -207, -129, -128, -1, 0, 1, 127, 128, 129, 169, 207, 255]
    assert signed_log_buckets(torch.tensor(offsets), buckets=256, max_distance=512).tolist() == expected


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(None, 7), (2, 5), (3, 9), (4, 4), (5, 8), (6, 12), (7, 30), (9, 6), (256, 512)]
)
def test_all_offsets_from_the_reach_on_share_a_row_on_either_side(buckets, max_distance):
    scheme = made(buckets=buckets, max_distance=max_distance)
    offsets = torch.arange(-3000, 3001)
    rows, _ = scheme._rows(Geometry(offsets[None, -1:, None] * 0, offsets[None, :, None]))
    reach = scheme.relative_vectors(Geometry.causal(1)).reach
    for far in (offsets >= reach, offsets <= -reach):
        assert len(rows[0, 0, far].unique()) == 1


@pytest.mark.parametrize(("buckets", "max_distance"), [(256, 512), (32, 128), (4, 4), (6, 100)])
def test_buckets_grow_with_the_offset_and_change_sign_with_it(buckets, max_distance):
    offsets = torch.arange(-5000, 5001)
    made = signed_log_buckets(offsets, buckets=buckets, max_distance=max_distance)
    assert (made.diff() >= 0).all()
    assert made.equal(-made.flip(0))
    assert made[5000 + max_distance - 1] == buckets - 1
    assert made.tolist() == [bucketed(offset, buckets, max_distance) for offset in offsets.tolist()]


def test_content_to_position_has_no_bias_because_a_row_would_get_the_same_everywhere():
    assert born().key.bias is None
    assert born().query.bias is not None


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [
        {"buckets": None, "max_distance": 8},
        {"terms": "c2p"},
        {"terms": "p2c"},
        {"version": DebertaVersion(mirrored=True)},
        {"version": DebertaVersion(rescale=False)},
        {"version": DebertaVersion(norm_eps=1e-5)},
        {"buckets": 6, "max_distance": 12},
    ],
)
def test_every_promise_of_a_scheme_holds(options):
    broken = {came.name: came.message for came in check_scheme(Deberta, **options) if came.message}
    assert broken == {}


def test_without_rescaling_it_leaves_the_queries_alone():
    assert born().hooks == ("encode_query", "content_bias")
    assert born(rescale=False).hooks == ("content_bias",)


@pytest.mark.parametrize("name", ["width", "heads", "head_width", "max_distance"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Deberta(**{"width": 4, "heads": 2, "head_width": 2, name: 0})


@pytest.mark.parametrize("buckets", [-1, 0, 1])
def test_there_are_two_buckets_at_least(buckets):
    with pytest.raises(ValueError, match=f"deberta needs at least 2 buckets; got {buckets}; 256 is usual"):
        born(buckets=buckets)


def test_the_far_buckets_must_lie_beyond_the_single_ones():
    with pytest.raises(ValueError, match="got 4 with 6 buckets; give more than 4"):
        born(buckets=6, max_distance=4)
    unordered = {"unordered": True}
    with pytest.raises(ValueError, match="a max_distance of at most half of their number; got 4 with 6 buckets"):
        born(buckets=6, max_distance=4, **unordered)
    with pytest.raises(ValueError, match="unordered is an option of buckets; got buckets=None; leave"):
        born(buckets=None, max_distance=4, **unordered)


def test_mirrored_without_position_to_content_is_refused():
    with pytest.raises(ValueError, match="mirrored applies to the p2c term only; got terms='c2p'; leave it out"):
        born(terms="c2p", mirrored=True)


def test_unknown_terms_are_refused(untyped):
    with pytest.raises(ValueError, match="no set of terms is named 'c2c'; there are: both, c2p, p2c"):
        born(terms="c2c")


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(256, 512), (32, 128), (6, 100), (7, 100), (2, 5), (3, 5), (32, 16), (32, 5), (8, 1), (5, 2)],
)
def test_the_buckets_agree_with_transformers(buckets, max_distance):
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    offsets = torch.arange(-2000, 2001)
    theirs = modeling.make_log_bucket_position(offsets, buckets, max_distance)
    assert signed_log_buckets(offsets, buckets=buckets, max_distance=max_distance).equal(theirs.long())


def attention(scheme, q, k, v, tokens):
    at = scheme.at(Geometry.full(tokens))
    return attend(q, k, v, at).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
@pytest.mark.parametrize("shared", [True, False])
def test_attention_agrees_with_deberta_v2_in_transformers(terms, shared):
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    configuration = pytest.importorskip("transformers.models.deberta_v2.configuration_deberta_v2")
    kinds = ["c2p", "p2c"] if terms == "both" else [terms]
    config = configuration.DebertaV2Config(
        hidden_size=8,
        num_attention_heads=2,
        relative_attention=True,
        position_buckets=6,
        max_relative_positions=12,
        pos_att_type=kinds,
        share_att_key=shared,
    )
    layer = modeling.DisentangledSelfAttention(config).double().eval()
    scheme = Deberta(width=8, heads=2, head_width=4, buckets=6, max_distance=12, terms=terms).double()
    x, table = torch.randn(2, 20, 8, dtype=torch.float64), torch.randn(12, 8, dtype=torch.float64)
    with torch.no_grad():
        scheme.table.copy_(table)
        if scheme.key is not None:
            # their bias adds the same to every score of a row
            scheme.key.weight.copy_((layer.key_proj if shared else layer.pos_key_proj).weight)
        if scheme.query is not None:
            scheme.query.load_state_dict((layer.query_proj if shared else layer.pos_query_proj).state_dict())
        theirs, _ = layer(x, torch.ones(2, 1, 20, 20), rel_embeddings=table)
        projections = (layer.query_proj, layer.key_proj, layer.value_proj)
        q, k, v = (project(x).unflatten(-1, (2, 4)).transpose(1, 2) for project in projections)
        ours = attention(scheme, q, k, v, 20)
    # their scale is a number in float32
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tokens", [5, 20])
def test_attention_agrees_with_deberta_in_transformers(tokens):
    modeling = pytest.importorskip("transformers.models.deberta.modeling_deberta")
    configuration = pytest.importorskip("transformers.models.deberta.configuration_deberta")
    config = configuration.DebertaConfig(
        hidden_size=8,
        num_attention_heads=2,
        relative_attention=True,
        max_relative_positions=7,
        pos_att_type=["c2p", "p2c"],
    )
    layer = modeling.DisentangledSelfAttention(config).double().eval()
    scheme = Deberta(width=8, heads=2, head_width=4, buckets=None, max_distance=7).double()
    x, table = torch.randn(2, tokens, 8, dtype=torch.float64), torch.randn(14, 8, dtype=torch.float64)
    with torch.no_grad():
        scheme.table.copy_(table)
        scheme.key.weight.copy_(layer.pos_proj.weight)
        scheme.query.load_state_dict(layer.pos_q_proj.state_dict())
        offsets = modeling.build_relative_position(x, x)
        theirs, _ = layer(x, torch.ones(2, 1, tokens, tokens), relative_pos=offsets, rel_embeddings=table)
        q, k, v = layer.transpose_for_scores(layer.in_proj(x)).chunk(3, -1)
        q, v = (
            part + layer.transpose_for_scores(bias[None, None])
            for part, bias in ((q, layer.q_bias), (v, layer.v_bias))
        )
        ours = attention(scheme, q, k, v, tokens)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_vectors_for_another_model_are_refused(untyped):
    q, k = torch.randn(2, 1, HEADS + 1, 4, HEAD_WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match="must have as many heads as the queries, or one, and their head width; got"):
        born().content_bias(q, k, Geometry.causal(4))


def shared(**options):
    return {"max_distance": 12, "buckets": 6, "shared": True} | options


@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_a_shared_table_is_read_by_the_projections_of_contents(terms):
    scheme = made(width=6, norm_eps=1e-7, **shared(terms=terms)).double()
    mixer = Softmax(width=6, heads=HEADS, variant=AttentionOptions(bias=True)).double()
    for parameter in (*scheme.parameters(), *mixer.parameters()):
        parameter.data.add_(torch.randn_like(parameter))
    alone = made(width=6, **shared(terms=terms, shared=False)).double()
    with torch.no_grad():
        alone.table.copy_(scheme.norm(scheme.table))
        query, key, _ = mixer.project.weight.split(6)
        if alone.query is not None:
            alone.query.weight.copy_(query)
            alone.query.bias.copy_(mixer.project.bias[:6])
        if alone.key is not None:
            alone.key.weight.copy_(key)
    x, where = torch.randn(2, 9, 6).double(), Geometry.causal(9)
    y, expected = mixer(x, scheme.at(where))[0], mixer(x, alone.at(where))[0]
    assert torch.allclose(y, expected, rtol=0, atol=1e-12)
    y.square().sum().backward()
    assert all(bool((x.grad != 0).any()) for x in scheme.parameters())
    assert scheme.per_layer is False
    assert alone.per_layer is True


def test_a_shared_table_gets_its_gradients_through_the_projections():
    scheme = made(width=4, head_width=2, max_distance=6, buckets=4, shared=True, norm_eps=1e-5).double()
    mixer = Softmax(width=4, heads=2, variant=AttentionOptions(bias=True)).double()
    x, parts = torch.randn(1, 3, 4).double(), (scheme.table, mixer.project.weight, mixer.project.bias)
    scheme.table.data.mul_(50)

    def run(table, weight, bias):
        replaced = {"table": table}
        with parametrized(scheme, replaced), parametrized(mixer.project, {"weight": weight, "bias": bias}):
            return mixer(x, scheme.at(Geometry.full(3)))[0]

    assert torch.autograd.gradcheck(run, tuple(part.detach().requires_grad_() for part in parts))


@contextmanager
def parametrized(module, tensors):
    kept = {name: module._parameters.pop(name) for name in tensors}
    for name, tensor in tensors.items():
        object.__setattr__(module, name, tensor)
    try:
        yield
    finally:
        for name in tensors:
            object.__delattr__(module, name)
        module._parameters |= kept


@pytest.mark.parametrize("own", ["query", "key", "both"])
@torch.no_grad()
def test_a_shared_table_is_read_by_projections_of_its_own(own):
    scheme, x, where = made(width=6, **shared()).double(), torch.randn(2, 9, 6).double(), Geometry.full(9)
    scheme.table.mul_(50)
    variant = AttentionOptions(bias=True)
    plain = Softmax(width=6, heads=HEADS, variant=variant).double()
    mixer = Softmax(width=6, heads=HEADS, variant=variant, position_projections=own).double()
    parts = {"query": mixer.position_query, "key": mixer.position_key}
    assert {name for name, part in parts.items() if part is not None} == set(parts if own == "both" else [own])
    mixer.load_state_dict(plain.state_dict(), strict=False)
    for rows, name in enumerate(parts):
        if parts[name] is not None:
            # those of the tokens give what they give
            parts[name].weight.copy_(plain.project.weight.split(6)[rows])
            parts[name].bias.copy_(plain.project.bias.split(6)[rows])
    assert torch.allclose(mixer(x, scheme.at(where))[0], plain(x, scheme.at(where))[0], atol=1e-12)
    for part in filter(None, parts.values()):
        part.weight.mul_(-1)
    assert not torch.allclose(mixer(x, scheme.at(where))[0], plain(x, scheme.at(where))[0], atol=1e-3)


def test_projections_that_no_scheme_uses_are_refused(untyped):
    x, where = torch.randn(1, 3, 6), Geometry.full(3)
    mixer = Softmax(width=6, heads=2, position_projections="key")
    for scheme in (made(width=6), Learned(width=6, max_length=4)):
        at = scheme.at(where)
        at.embed(x)
        with pytest.raises(
            ValueError, match=r"serve a scheme with the hook `bind_projections`; got .*; leave them out"
        ):
            mixer(x, at)
    with pytest.raises(ValueError, match="no option position_projections is named 'value'; there are: both, key"):
        Softmax(width=6, heads=2, position_projections="value")


@torch.no_grad()
def test_a_sum_binds_the_projections_of_a_layer_to_its_parts():
    learned, scheme = Learned(width=6, max_length=9).double(), made(width=6, **shared()).double()
    scheme.table.mul_(50)
    mixer, where = Softmax(width=6, heads=HEADS).double(), Geometry.full(9)
    x, both = torch.randn(2, 9, 6).double(), Sum(learned, scheme)
    at = both.at(where)
    moved = at.embed(x)
    assert torch.equal(moved, x + learned.table)
    assert torch.allclose(mixer(moved, at)[0], mixer(moved, scheme.at(where))[0], atol=1e-12)
    # a bound copy leaves the sum as it was
    assert "bind_projections" in both.hooks
    assert not both.bound


def test_a_shared_table_without_projections_is_refused(untyped):
    scheme = made(width=6, **shared())
    q = k = v = torch.randn(1, HEADS, 4, 3)
    with pytest.raises(
        ValueError, match="a shared table needs the query and key projections of a layer; got none; use it as"
    ):
        attend(q, k, v, scheme.at(Geometry.full(4)))
    with pytest.raises(
        ValueError, match="mixer 'shared_qk' does not support hook 'bind_projections', used by scheme 'deberta'"
    ):
        Decoder(Shape(vocabulary=5, width=12, heads=2, mixer="shared_qk", scheme="deberta:version.shared=true"))
    model = Decoder(Shape(vocabulary=5, width=12, heads=2, kv_heads=1, scheme="deberta:version.shared=true"))
    with pytest.raises(
        ValueError, match="needs as many key heads as query heads; got widths 12 and 6; drop kv_heads"
    ):
        model(torch.zeros(1, 2).long())


@torch.no_grad()
def test_one_table_is_shared_by_all_layers_also_in_decoding():
    model = (
        Decoder(Shape(vocabulary=5, width=12, heads=2, layers=3, scheme="deberta:version.shared=true"))
        .double()
        .eval()
    )
    model.schemes[0].table.mul_(100)
    ids, cache = torch.randint(0, 5, (2, 9)), Cache()
    assert len(model.schemes) == 1
    pieces = [model(piece, cache=cache) for piece in ids.split([4, 1, 4], 1)]
    assert torch.allclose(torch.cat(pieces, 1), model(ids), atol=1e-10)
