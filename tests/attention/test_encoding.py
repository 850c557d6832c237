"""Position is encoded exactly once: forgetting it, or encoding twice, is an error."""

import pytest
import torch

from ordinate import Geometry, attend, attend_encoded
from ordinate.core import catalog
from ordinate.schemes import (
    Alibi,
    Encoded,
    HeadGroups,
    Learned,
    NoPosition,
    Pope,
    Rope,
    Scheme,
    Sinusoidal,
    Sum,
    Xpos,
)
from ordinate.testing.case import SchemeCase, random_qkv

CAUSAL = Geometry.causal(7)


def at_random(name):
    """A scheme with drawn parameters, at a causal geometry; its embeddings are given to tokens."""
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    return case.scheme().eval().at(case.with_axes(CAUSAL)), case


@pytest.mark.parametrize("name", catalog.names("ordinate.schemes"))
def test_no_scheme_is_silently_left_out(name):
    at, case = at_random(name)
    q, k, v = random_qkv(2, 7)
    if "embed" in at.scheme.hooks:
        with pytest.raises(ValueError, match=r"enters at the token embeddings.*; got no call of at\.embed"):
            attend(q, k, v, at)
        at.embed(case.embeddings(2, 7))
    out = attend(q, k, v, at)
    inside = set(at.scheme.hooks) - {"embed", "remap_positions"}
    assert torch.allclose(out, attend(q, k, v, NoPosition().at(CAUSAL))) == (not inside)
    torch.testing.assert_close(out, attend_encoded(at.encode(q, k), v, at, scale=q.shape[3] ** -0.5))


@pytest.mark.parametrize("name", catalog.names("ordinate.schemes"))
@torch.no_grad()
def test_keys_are_encoded_into_given_memory(name):
    at, _ = at_random(name)
    q, k, _ = random_qkv(2, 7)
    usual = at.encode(q, k)
    into = torch.empty(*usual.k.shape[:2], 9, usual.k.shape[3], dtype=usual.k.dtype)[:, :, 1:8]
    made = at.encode(q, k, into=into)
    assert made.k is into
    assert made.q.equal(usual.q)
    assert into.equal(usual.k)


@pytest.mark.parametrize("scheme", [Rope(head_width=8), Alibi(heads=4)], ids=["rotated", "as it is"])
def test_keys_are_encoded_into_no_unfit_memory(scheme):
    at, (q, k, _) = scheme.at(CAUSAL), random_qkv(2, 7)
    with pytest.raises(ValueError, match=r"without gradients; got a call with gradients enabled; .*no_grad"):
        at.encode(q, k, into=torch.empty_like(k))
    with torch.no_grad():
        for into in (k.bfloat16(), k.new_empty(2, 2, 8, 8), k.new_empty(1, 2, 7, 8), k.to("meta")):
            with pytest.raises(ValueError, match=r"has their shape, dtype and device; got \("):
                at.encode(q, k, into=into)
        for into in (k.new_empty(2, 2, 8, 7).mT, k.repeat(1, 1, 1, 2)[..., ::2], k[:, :1].clone().expand_as(k)):
            with pytest.raises(ValueError, match="has contiguous channels, and a place for each number; got str"):
                at.encode(q, k, into=into)
        with pytest.raises(ValueError, match="other memory than their own"):
            at.encode(q, k, into=k[:, :, :])


@pytest.mark.parametrize(
    "scheme",
    [
        Rope(head_width=8),
        Xpos(head_width=8),
        Sum(Rope(head_width=8), Alibi(heads=4)),
        HeadGroups(Rope(head_width=8), NoPosition(), heads=4),
    ],
    ids=lambda scheme: type(scheme).__name__,
)
def test_keys_of_a_cache_are_encoded_at_their_own_positions(scheme):
    q, k, v = random_qkv(2, 7)
    whole = attend(q, k, v, scheme.at(CAUSAL))
    last = attend(q[:, :, 5:], k, v, scheme.at(Geometry.causal(2, cached=5)))
    torch.testing.assert_close(last, whole[:, :, 5:])
    at = scheme.at(Geometry.causal(2, cached=5))
    new, cached = at.encode(q[:, :, 5:], k[:, :, 5:]), scheme.at(Geometry.causal(5)).encode(q[:, :, :5], k[:, :, :5])
    kept = attend_encoded(Encoded(new.q, torch.cat([cached.k, new.k], 2)), v, at)
    torch.testing.assert_close(kept, whole[:, :, 5:])


def test_what_is_encoded_cannot_be_encoded_again(untyped):
    at, (q, k, v) = Rope(head_width=8).at(CAUSAL), random_qkv(2, 7)
    encoded = at.encode(q, k)
    with pytest.raises(TypeError, match=r"are not unpacked; attend\(q, k, v, at\) takes raw ones"):
        attend(*encoded, v, at)
    with pytest.raises(TypeError, match="got queries and keys that are encoded; call attend_encoded"):
        attend(encoded, k, v, at)
    with pytest.raises(TypeError, match=r"needs what at\.encode\(q, k\) returns; got Tensor; call attend"):
        attend_encoded(q, v, at)


def test_the_default_scale_is_that_of_the_head_width():
    # pope doubles the width of queries and keys
    (q, k, v), at = random_qkv(2, 7), Pope(head_width=8, heads=4, kv_heads=2, init="uniform").double().at(CAUSAL)
    torch.testing.assert_close(attend(q, k, v, at), attend(q, k, v, at, scale=8**-0.5))
    assert not torch.allclose(attend(q, k, v, at), attend_encoded(at.encode(q, k), v, at))


def test_a_block_of_an_embedded_scheme_is_embedded():
    at, (q, k, v) = Sum(Learned(width=16, max_length=9), Alibi(heads=4)).double().at(CAUSAL), random_qkv(2, 7)
    at.embed(torch.randn(2, 7, 16).double())
    rows = attend(q[:, :, 2:4], k, v, at.block(slice(2, 4)))
    torch.testing.assert_close(rows, attend(q, k, v, at)[:, :, 2:4])
    with pytest.raises(ValueError, match="Sinusoidal enters at the token embeddings"):
        attend(q, k, v, Sinusoidal(width=16).at(CAUSAL).block(slice(None)))


def test_tokens_are_embedded_once():
    at, x = Sinusoidal(width=8).at(CAUSAL), torch.randn(2, 7, 8)
    marked = at.embed(x)
    with pytest.raises(ValueError, match=r"given to tokens once; got the tokens that at\.embed returned; call"):
        at.embed(marked)
    # a second text with the same positions
    at.embed(x + 1)
    # a scheme that does nothing there
    at = NoPosition().at(CAUSAL)
    assert at.embed(at.embed(x)) is x


def test_queries_and_keys_of_another_scheme_are_refused():
    q, k, v = random_qkv(2, 7)
    rope, plain = Rope(head_width=8).at(CAUSAL), NoPosition().at(CAUSAL)
    with pytest.raises(ValueError, match=r"by the scheme of `at`; got those of NoPosition\(\) and Placed\(Rope"):
        attend_encoded(plain.encode(q, k), v, rope)
    new = rope.encode(q, k)
    # another placed scheme of the same one, and tensors of a cache
    out = attend_encoded(new, v, rope.scheme.at(CAUSAL))
    assert torch.equal(out, attend_encoded(Encoded(new.q, new.k), v, rope))
