"""Each scheme in a model that is not ours: every form gives what `attend` gives."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from ordinate import Geometry, attend, attend_encoded
from ordinate.core import catalog
from ordinate.schemes import Alibi, Encoded, Scheme
from ordinate.schemes._score_mod import mask_mod, score_mod
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.case import HEAD_WIDTH, HEADS, KV_HEADS, SchemeCase
from ordinate.testing.tolerance import assert_as_close

NAMES = catalog.names("ordinate.schemes")
# the scale of the softmax mixer, also for schemes that widen q and k
SCALE = HEAD_WIDTH**-0.5
# it is meant to be compiled; without, it is the same mathematics, and traces what it reads all the same
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def encoded(name, where):
    """A scheme of the catalog at a geometry, marked queries and keys, and values."""
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    at = case.scheme().eval().at(case.with_axes(where))
    q, k, v = (
        x.detach() for x in random_qkv(where, heads=HEADS, kv_heads=KV_HEADS, width=HEAD_WIDTH, dtype=torch.float64)
    )
    q, k = at.scheme.encode_query(q, at.where.q_pos), at.scheme.encode_key(k, at.where.k_pos)
    # FlexAttention has no way back to q and k on a CPU
    return at, q.detach(), k.detach(), v


def content(at, q, k):
    return at.scheme.content_bias(q, k.repeat_interleave(HEADS // KV_HEADS, 1), at.where)


def by_sdpa(at, q, k, v):
    mask, more = at.mask, content(at, q, k)
    if more is not None:
        mask = more.masked_fill(~at.where.visible[:, None], float("-inf")) + (0.0 if at.bias is None else at.bias)
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=SCALE, enable_gqa=True)


def by_flex(at, q, k, v):
    shape = {"Q_LEN": q.shape[2], "KV_LEN": k.shape[2], "device": "cpu"}
    seen = create_block_mask(mask_mod(at.where), q.shape[0], None, **shape)
    return flex_attention(q, k, v, score_mod=score_mod(at, q, k), block_mask=seen, scale=SCALE, enable_gqa=True)


def by_hand(at, q, k, v):
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    own = at.scheme.score(q, k, at.where)
    scores = (q @ k.mT if own is None else own) * SCALE
    for bias in (at.scheme.bias(at.where), at.scheme.content_bias(q, k, at.where)):
        scores = scores if bias is None else scores + bias
    # fully masked rows are excluded: they are NaN in PyTorch
    weights = scores.masked_fill(~at.where.visible[:, None], float("-inf")).softmax(-1)
    carried = at.scheme.value_bias(weights, at.where)
    return (weights @ v + (0.0 if carried is None else carried)).nan_to_num(0.0)


# what a form cannot take: the hooks that need more than it offers
FORMS = {by_hand: set(), by_sdpa: {"score", "value_bias"}, by_flex: {"score", "value_bias"}}
CASES = [(form, geometry) for form in (by_hand, by_sdpa) for geometry in GEOMETRIES]
CASES += [(by_flex, geometry) for geometry in ("causal", "left")]


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_scheme_gives_elsewhere_what_it_gives_here(name, geometry):
    at, q, k, v = encoded(name, GEOMETRIES[geometry](9))
    exact = attend_encoded(Encoded(q, k), v, at, scale=SCALE, backend="reference")
    for form, beyond in FORMS.items():
        if (form, geometry) in CASES and not beyond & set(at.scheme.hooks):
            assert_as_close(form(at, q, k, v), exact, exact)


def flash(q, k, v, slopes, *, causal):
    """What flash-attention documents: -slope |i + keys - queries - j| is added, the last query at the last key."""
    queries, keys = q.shape[2], k.shape[2]
    i, j = torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)
    scores = q @ k.mT / q.shape[3] ** 0.5 - slopes[:, None, None] * (i - j).abs()
    return scores.masked_fill((j > i) & causal, float("-inf")).softmax(-1) @ v


@pytest.mark.parametrize(
    ("where", "causal"),
    [(Geometry.causal(9), True), (Geometry.causal(3, cached=6), True), (Geometry.full(9), False)],
    ids=["causal", "cached", "symmetric"],
)
@pytest.mark.parametrize("heads", [4, 6])
def test_the_slopes_of_alibi_are_those_of_flash_attention(where, causal, heads):
    alibi = Alibi(heads=heads)
    q, k, v = (x.detach() for x in random_qkv(where, heads=heads, kv_heads=heads, dtype=torch.float64))
    exact = attend(q, k, v, alibi.at(where), backend="reference")
    assert_as_close(flash(q, k, v, torch.as_tensor(alibi.slopes, dtype=torch.float64), causal=causal), exact, exact)
