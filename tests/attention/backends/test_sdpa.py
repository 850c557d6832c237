from itertools import product
from unittest import mock

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ordinate import Geometry, attend, explain
from ordinate.attention import _proof, _sdpa
from ordinate.attention.backends import sdpa as backend
from ordinate.core.devices import as_if_on
from ordinate.ops import sdpa
from ordinate.schemes import T5, Alibi, NoPosition, Rope, Toeplitz
from ordinate.testing.backend import GEOMETRIES, assert_agrees, random_qkv


def t5() -> T5:
    """T5 with a bias table large enough that a missing bias is detected."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
TYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](17)
    assert_agrees("sdpa", SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.covering(1)
@pytest.mark.parametrize(("tokens", "width"), list(product([1, 7, 63, 129], [1, 8, 24])))
@pytest.mark.parametrize("type", TYPES)
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, type):
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("sdpa", SCHEMES[name](), where, *random_qkv(where, width=width, dtype=type))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_in_order(kv_heads):
    where = Geometry.causal(9)
    q, k, v = random_qkv(where, kv_heads=kv_heads, dtype=torch.float64)
    assert_agrees("sdpa", Alibi(heads=4), where, q, k, v)
    groups = 4 // kv_heads
    repeated = [x.repeat_interleave(groups, 1) for x in (k, v)]
    at = Alibi(heads=4).at(where)
    assert torch.allclose(attend(q, k, v, at), attend(q, *repeated, at), atol=1e-13)


@pytest.mark.parametrize("layout", ["transposed", "every second", "expanded"])
def test_strided_inputs_give_the_same_result(layout):
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
    q, k, v = random_qkv(where, dtype=torch.float32)
    function = torch.nn.functional.scaled_dot_product_attention
    with mock.patch("ordinate.ops.sdpa.scaled_dot_product_attention", side_effect=function) as spy:
        attend(q, k, v, NoPosition().at(where), backend="sdpa")
    given = spy.call_args.kwargs
    assert given["is_causal"] == where.is_plain_causal
    assert not given["is_causal"] or q.shape[2] == k.shape[2]


@pytest.mark.parametrize("geometry", ["causal", "full", "cross", "newest"])
def test_plain_causal_and_full_attention_need_no_mask(geometry):
    where = GEOMETRIES[geometry](7)
    q, k, v = random_qkv(where, dtype=torch.float32)
    with mock.patch.object(_sdpa, "_mask", side_effect=_sdpa._mask) as spy:
        attend(q, k, v, NoPosition().at(where), backend="sdpa")
    assert all(call.args[0].at.mask is None for call in spy.call_args_list)
    # the buffers of PyTorch's kernel alone
    told = explain(q, k, v, NoPosition().at(where), backend="sdpa").workspace_bytes
    assert told < 1000 * (torch.get_num_threads() + q.shape[0] * q.shape[1])


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
def test_16_bit_training_on_a_cpu_is_computed_in_float32(type):
    where = Geometry.causal(7)
    q, k, v = random_qkv(where, dtype=type)
    function = torch.nn.functional.scaled_dot_product_attention
    for inputs, seen, copies in (
        ((q, k, v), torch.float32, 4 * 6 * q.numel() // 2),
        ([x.detach() for x in (q, k, v)], type, 0),
    ):
        with mock.patch("ordinate.ops.sdpa.scaled_dot_product_attention", side_effect=function) as spy:
            out = attend(*inputs, NoPosition().at(where), backend="sdpa")
        assert spy.call_args.args[0].dtype == seen
        assert out.dtype == type
        told = explain(*inputs, NoPosition().at(where)).workspace_bytes
        assert 0 < told - copies < 8000 * torch.get_num_threads()


def test_bfloat16_training_of_long_texts_is_left_in_bfloat16_with_amx(monkeypatch):
    function, where = torch.nn.functional.scaled_dot_product_attention, Geometry.causal(16)

    def types(width, type=torch.bfloat16):
        q, k, v = random_qkv(where, width=width, dtype=type)
        with mock.patch("ordinate.ops.sdpa.scaled_dot_product_attention", side_effect=function) as spy:
            attend(q, k, v, NoPosition().at(where), backend="sdpa").sum().backward()
        return spy.call_args.args[0].dtype

    monkeypatch.setattr(_sdpa, "AMX_WIDTH", 8)
    monkeypatch.setattr(_sdpa, "AMX_NUMBERS", 16 * 8)
    monkeypatch.setattr(_sdpa, "multiplies_tiles", lambda: True)
    assert types(8) == torch.bfloat16
    assert types(4) == types(8, torch.float16) == torch.float32
    monkeypatch.setattr(_sdpa, "AMX_NUMBERS", 17 * 8)
    assert types(8) == torch.float32
    monkeypatch.setattr(_sdpa, "multiplies_tiles", lambda: False)
    assert types(64) == torch.float32


def test_a_bias_that_learns_beside_16_bit_inputs_without_gradients_is_not_rounded():
    where = Geometry.full(40)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.bfloat16))
    scheme = Toeplitz(heads=4, max_length=40)
    with torch.no_grad():
        # above 128, bfloat16 has whole numbers only
        scheme.table.copy_(torch.linspace(-200, 200, len(scheme.table))[:, None].expand_as(scheme.table))
    exact = attend(q.double(), k.double(), v.double(), scheme.at(where), backend="reference").detach()
    out = attend(q, k, v, scheme.at(where), backend="sdpa")
    with torch.no_grad():
        kept = attend(q, k, v, scheme.at(where), backend="sdpa")
    assert (out - exact).abs().max() <= 1.5 * (kept - exact).abs().max()
    at = [scheme.at(where), Toeplitz(heads=4, max_length=40).requires_grad_(False).at(where)]
    told = [explain(q, k, v, one, backend="sdpa").workspace_bytes for one in at]
    # float32 copies of q, k, v and the result
    assert told[0] - told[1] > 4 * 2 * q.numel()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("nan", "q, k or v contains NaN or infinity"),
        ("width", "the values have another head width than queries and keys"),
        ("empty", "a tensor is empty"),
        ("value_bias", "the scheme's value_bias needs the attention weights"),
    ],
)
def test_unsupported_calls_are_rejected(change, match):
    class Carrying(NoPosition):
        def value_bias(self, weights, where):
            return None

    where = Geometry.causal(0 if change == "empty" else 4)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    if change == "nan":
        v[0, 0, 0, 0] = float("nan")
    if change == "width":
        v = v[..., :3]
    at = (Carrying() if change == "value_bias" else NoPosition()).at(where)
    assert match in explain(q, k, v, at).unsupported["sdpa"]
    assert explain(q, k, v, at).backend == "reference"
    with pytest.raises(ValueError, match=f"the backend 'sdpa' must support the call; it does not: .*{match}"):
        attend(q, k, v, at, backend="sdpa")


@pytest.mark.parametrize(
    ("geometry", "name", "expected"),
    [("window", "none", 17), ("left", "none", 12.7), ("causal", "alibi", 2 * 4 * 4 + 1)],
)
def test_its_bytes_are_those_of_its_mask_while_it_is_made(geometry, name, expected):
    where = GEOMETRIES[geometry](600)
    at = SCHEMES[name]().at(where)
    q, k, v = random_qkv(where, dtype=torch.float32)
    told = explain(q, k, v, at, backend="sdpa").workspace_bytes
    assert told == pytest.approx(expected * where.shape[0] * where.shape[1], rel=0.1)


def test_scores_too_large_for_its_gradients_are_rejected():
    where = Geometry.causal(17)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    q = (q * 1e16).requires_grad_()
    at = NoPosition().at(where)
    assert "scores may exceed 1e+06" in explain(q, k, v, at).unsupported["sdpa"]
    with torch.no_grad():
        assert "sdpa" not in explain(q, k, v, at).unsupported
    (slope,) = torch.autograd.grad(scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum(), q)
    # they stay finite on an Intel Xeon
    on_amd = torch.cpu.get_capabilities().get("cpu_name", "").startswith("AMD")
    assert not on_amd or not slope.isfinite().all(), "PyTorch has mended it: take these calls"


@pytest.mark.parametrize("geometry", ["causal", "full", "left"])
def test_a_scale_of_zero_is_left_to_others_and_gives_the_mean(geometry):
    where = GEOMETRIES[geometry](5)
    q, k, v = random_qkv(where, dtype=torch.float32)
    at = NoPosition().at(where)
    out = attend(q, k, v, at, scale=0.0)
    seen = where.visible[:, None].float()
    mean = seen / seen.sum(-1, keepdim=True).clamp(min=1) @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(out, mean)
    assert "the scale is 0" in explain(q, k, v, at, scale=0.0).unsupported["sdpa"]


@pytest.mark.parametrize("geometry", ["causal", "full", "left", "window"])
def test_a_negative_scale_reaches_no_kernel_that_returns_nan(geometry):
    where = GEOMETRIES[geometry](9)
    q, k, v = random_qkv(where, dtype=torch.float32)
    at = Rope(head_width=q.shape[3]).at(where)
    exact = attend(q, k, v, at, scale=-0.7, backend="reference")
    torch.testing.assert_close(attend(q, k, v, at, scale=-0.7), exact)
    refused = explain(q, k, v, at, scale=-0.7).unsupported.get("sdpa", "")
    assert ("the scale is below 0" in refused) == (geometry == "causal")
    with as_if_on("cuda"):
        assert "the scale is below 0" in explain(q, k, v, at, scale=-0.7).unsupported["sdpa"]


@pytest.mark.parametrize(("scheme", "excluded"), [(NoPosition(), False), (Alibi(heads=4), True)])
def test_on_a_gpu_cudnn_is_excluded_where_a_mask_is_given(scheme, excluded):
    where = Geometry.causal(9)
    seen = []

    def attention(*given, **options):
        seen.append((torch.backends.cuda.cudnn_sdp_enabled(), options["attn_mask"] is None))
        return scaled_dot_product_attention(*given, **options)

    q, k, v = random_qkv(where, dtype=torch.float32)
    with mock.patch.object(sdpa, "scaled_dot_product_attention", attention), as_if_on("cuda"):
        attend(q, k, v, scheme.at(where), backend="sdpa")
    assert seen[-1] == (not excluded, not excluded)
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        (SDPBackend.MATH, {SDPBackend.MATH}),
        (
            SDPBackend.CUDNN_ATTENTION,
            {SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION},
        ),
    ],
    ids=["one other", "cuDNN's alone"],
)
def test_on_a_gpu_kernels_that_are_switched_off_stay_so_where_cudnn_is_excluded(chosen, left):
    where, seen = Geometry.causal(9), []

    def attention(*given, **options):
        seen.append(set(sdpa.enabled_kernels()))
        return scaled_dot_product_attention(*given, **options)

    q, k, v = random_qkv(where, dtype=torch.float32)
    replaced = mock.patch.object(sdpa, "scaled_dot_product_attention", attention)
    with replaced, as_if_on("cuda"), sdpa_kernel(chosen):
        attend(q, k, v, Alibi(heads=4).at(where), backend="sdpa")
        assert sdpa.enabled_kernels() == [chosen]
    assert seen[-1] == left


def test_on_a_gpu_a_mask_that_gives_wrong_numbers_is_refused(monkeypatch):
    where = Geometry.causal(9)
    q, k, v = random_qkv(where, dtype=torch.float32)
    for reason, chosen in (("it differs", "reference"), (_proof.UNTESTED, "sdpa"), (None, "sdpa")):
        monkeypatch.setattr(backend, "unproved_reason", lambda name, call, reason=reason: reason)
        with as_if_on("cuda"):
            assert explain(q, k, v, Alibi(heads=4).at(where)).backend == chosen
            # without a mask it is taken as it is
            assert explain(q, k, v, NoPosition().at(where)).backend == "sdpa"
