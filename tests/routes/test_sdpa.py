from itertools import product
from unittest import mock

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ordinate import T5, Alibi, Geometry, Unmarked, attend, explain, fused
from ordinate.testing.route import GEOMETRIES, assert_agrees, draw


def t5() -> T5:
    """With a table large enough that a lost bias cannot hide."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5}
TYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](17)
    assert_agrees("sdpa", SCHEMES[name](), where, *draw(where, type=type))


@pytest.mark.parametrize(("tokens", "width"), list(product([1, 7, 63, 129], [1, 8, 24])))
@pytest.mark.parametrize("type", TYPES)
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, type):
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("sdpa", SCHEMES[name](), where, *draw(where, width=width, type=type))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_in_order(kv_heads):
    where = Geometry.causal(9)
    q, k, v = draw(where, kv_heads=kv_heads, type=torch.float64)
    assert_agrees("sdpa", Alibi(heads=4), where, q, k, v)
    groups = 4 // kv_heads
    repeated = [x.repeat_interleave(groups, 1) for x in (k, v)]
    at = Alibi(heads=4).at(where)
    assert torch.allclose(attend(q, k, v, at), attend(q, *repeated, at), atol=1e-13)


@pytest.mark.parametrize("layout", ["transposed", "every second", "expanded"])
def test_strided_inputs_are_read_as_they_are(layout):
    where = Geometry.causal(9)
    if layout == "transposed":
        x = torch.randn(2, 9, 4, 8).transpose(1, 2)
    elif layout == "every second":
        x = torch.randn(2, 4, 18, 16)[:, :, ::2, ::2]
    else:
        x = torch.randn(1, 1, 9, 8).expand(2, 4, 9, 8)
    assert not x.is_contiguous()
    for name in SCHEMES:
        assert_agrees("sdpa", SCHEMES[name](), where, x, x, x)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("tokens", [1, 5])
def test_unequal_lengths_never_reach_is_causal(geometry, tokens):
    where = GEOMETRIES[geometry](tokens)
    q, k, v = draw(where, type=torch.float32)
    function = torch.nn.functional.scaled_dot_product_attention
    with mock.patch.object(fused, "scaled_dot_product_attention", side_effect=function) as spy:
        attend(q, k, v, Unmarked().at(where), route="sdpa")
    given = spy.call_args.kwargs
    assert given["is_causal"] == where.plain_causal
    assert not given["is_causal"] or q.shape[2] == k.shape[2]


@pytest.mark.parametrize("geometry", ["causal", "full", "cross", "newest"])
def test_structure_needs_no_mask(geometry):
    where = GEOMETRIES[geometry](7)
    q, k, v = draw(where, type=torch.float32)
    with mock.patch.object(fused, "_mask", side_effect=fused._mask) as spy:
        attend(q, k, v, Unmarked().at(where), route="sdpa")
    assert all(call.args[0].at.mask is None for call in spy.call_args_list)
    assert explain(q, k, v, Unmarked().at(where), route="sdpa").bytes == 0


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
def test_training_16_bit_inputs_on_a_cpu_is_done_in_float32(type):
    where = Geometry.causal(7)
    q, k, v = draw(where, type=type)
    function = torch.nn.functional.scaled_dot_product_attention
    for inputs, seen, copies in (
        ((q, k, v), torch.float32, 4 * 6 * q.numel() // 2),
        ([x.detach() for x in (q, k, v)], type, 0),
    ):
        with mock.patch.object(fused, "scaled_dot_product_attention", side_effect=function) as spy:
            out = attend(*inputs, Unmarked().at(where), route="sdpa")
        assert spy.call_args.args[0].dtype == seen
        assert out.dtype == type
        assert explain(*inputs, Unmarked().at(where)).bytes == copies


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("nan", "q, k or v holds a number that is not finite"),
        ("width", "the values have another width than queries and keys"),
        ("empty", "a tensor is empty"),
        ("carry", "the scheme's carry needs the attention weights"),
    ],
)
def test_what_it_cannot_do_it_refuses(change, match):
    class Carrying(Unmarked):
        def carry(self, weights, where):
            return None

    where = Geometry.causal(0 if change == "empty" else 4)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    if change == "nan":
        v[0, 0, 0, 0] = float("nan")
    if change == "width":
        v = v[..., :3]
    at = (Carrying() if change == "carry" else Unmarked()).at(where)
    assert match in explain(q, k, v, at).refused["sdpa"]
    assert explain(q, k, v, at).route == "reference"
    with pytest.raises(ValueError, match=f"the route 'sdpa' must take the call; it refuses: .*{match}"):
        attend(q, k, v, at, route="sdpa")


@pytest.mark.parametrize(
    ("geometry", "name", "expected"),
    [("window", "none", 7 * 7), ("left", "none", 2 * 7 * 7), ("causal", "alibi", 4 * 7 * 7 * 4)],
)
def test_the_bytes_it_tells_are_those_of_its_mask(geometry, name, expected):
    where = GEOMETRIES[geometry](7)
    at = SCHEMES[name]().at(where)
    q, k, v = draw(where, type=torch.float32)
    assert explain(q, k, v, at).bytes == expected == at.mask.numel() * at.mask.element_size()


def test_scores_too_large_for_its_gradients_go_elsewhere():
    where = Geometry.causal(17)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    q = (q * 1e30).requires_grad_()
    at = Unmarked().at(where)
    assert "scores may exceed 1e+06" in explain(q, k, v, at).refused["sdpa"]
    with torch.no_grad():
        assert "sdpa" not in explain(q, k, v, at).refused
    (slope,) = torch.autograd.grad(scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum(), q)
    assert not slope.isfinite().all(), "PyTorch has mended it: take these calls"
