"""The backend `relative_vectors` with the C++ kernel, and pairs beyond the reach of the vectors apart from others."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import relative_vectors as backend
from ordinate.ops import offset_vectors, relative_vector_attention, relative_vector_native, vector_ranges
from ordinate.ops.native import attention, build
from ordinate.schemes import Alibi, Deberta, HeadGroups, NoPosition, Shaw, Sum, TransformerXl
from ordinate.schemes.music import Music
from ordinate.testing.backend import GEOMETRIES, assert_second_gradients_agree, random_qkv
from ordinate.testing.tolerance import assert_as_close

SIZES = {"heads": 4, "head_width": 8}
BUCKETS = {"width": 12, "buckets": 4, "max_distance": 8}
SCHEMES = {
    "shaw, keys only": lambda: Shaw(**SIZES, per_head=True, values=False, past=0, future=4),
    "music": lambda: Music(**SIZES, max_length=9, out_of_range="zero", future=True),
    "transformer_xl": lambda: TransformerXl(**SIZES, width=12),
    "transformer_xl, clamped": lambda: TransformerXl(**SIZES, width=12, max_offset=6.5),
    "heads": lambda: HeadGroups(Shaw(head_width=8, past=3, values=False), Alibi(heads=2), heads=4),
    "sum": lambda: Sum(Alibi(heads=4), TransformerXl(**SIZES, width=12), Music(**SIZES, max_length=40)),
}
# with vectors of each offset for keys and values, too, which need pairs beyond the reach
CLIPPED = {
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "shaw of each head": lambda: Shaw(**SIZES, per_head=True, past=2, future=14),
    "deberta": lambda: Deberta(**SIZES, **BUCKETS),
    "deberta, keys": lambda: Deberta(**SIZES, **BUCKETS, terms="p2c"),
    "deberta, odd": lambda: Deberta(**SIZES, **BUCKETS | {"buckets": 5}),
    "music": SCHEMES["music"],
    "transformer_xl, clamped": SCHEMES["transformer_xl, clamped"],
    "sum": lambda: Sum(
        Alibi(heads=4),
        Deberta(**SIZES, **BUCKETS),
        Shaw(head_width=8, past=3),
        TransformerXl(**SIZES, width=12, max_offset=6),
    ),
    "heads": lambda: HeadGroups(Shaw(head_width=8, past=3), NoPosition(), heads=4),
}
LONG = {
    "causal": Geometry.causal,
    "full": Geometry.full,
    "window": lambda tokens: Geometry.causal(tokens, window=90),
    "two sides": lambda tokens: Geometry.full(tokens, window=200),
    "packed": GEOMETRIES["packed"],
    "left": GEOMETRIES["left"],
    "cross": lambda tokens: Geometry.cross(tokens, tokens + 35),
    "cached": lambda tokens: Geometry.causal(tokens, cached=40),
}


@pytest.fixture(autouse=True)
def _built(attention_kernel, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(backend, "MIN_PAIRS", 1)
    monkeypatch.setattr(backend, "MIN_NATIVE_PAIRS", (1, 1, 1))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(relative_vector_attention, "ROWS", 5)
    monkeypatch.setattr(offset_vectors, "KEYS", 3)


@pytest.fixture
def split(monkeypatch):
    """Pairs beyond the reach apart, whether that is faster or not."""
    monkeypatch.setattr(relative_vector_attention, "ROWS", 160)
    monkeypatch.setattr(vector_ranges, "MAX_SHARE", 100.0)


def made(scheme):
    torch.manual_seed(0)
    for parameter in scheme.parameters():
        nn.init.normal_(parameter, std=0.5)
    return scheme


def results(scheme, where, inputs, name):
    out = attend(*inputs, scheme.at(where), backend=name)
    upstream = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).cos().to(out.dtype)
    learned = {name: x for name, x in scheme.named_parameters() if x.requires_grad}
    slopes = torch.autograd.grad(out, [*inputs, *learned.values()], upstream, allow_unused=True)
    found = {"output": out.detach(), **dict(zip(["q", "k", "v", *learned], slopes, strict=True))}
    return {name: x for name, x in found.items() if x is not None}


def assert_same(scheme, where, inputs):
    found, plain = (results(scheme, where, inputs, name) for name in ("relative_vectors", "reference"))
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = results(deepcopy(scheme).double(), where, wide, "reference")
    for what in ("output", "q", "k", "v"):
        assert_as_close(found[what], plain[what], exact[what], factor=2.0 if what == "output" else 3.0, what=what)
    largest = max(x.abs().max() for x in exact.values())
    for what in exact.keys() - {"output", "q", "k", "v"}:
        # some are 0 but for rounding: sums over all pairs of numbers that cancel
        usual = (plain[what] - exact[what]).abs().max()
        limit = 4 * usual + 2e-6 * largest
        assert (found[what] - exact[what]).abs().max() <= limit, what


def way(scheme, where, inputs):
    return explain(*inputs, scheme.at(where), backend="relative_vectors").way


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_all_pairs_in_blocks_agree_with_the_reference_forward_and_backward(name, geometry):
    where, scheme = GEOMETRIES[geometry](17), made(SCHEMES[name]())
    inputs = random_qkv(where, dtype=torch.float32)
    assert way(scheme, where, inputs) == "the C++ kernel, all pairs in blocks"
    assert_same(scheme, where, inputs)


@pytest.mark.usefixtures("split")
@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", LONG)
@pytest.mark.parametrize("name", CLIPPED)
def test_pairs_beyond_the_reach_agree_with_the_reference_forward_and_backward(name, geometry):
    where, scheme = LONG[geometry](300), made(CLIPPED[name]())
    inputs = random_qkv(where, dtype=torch.float32)
    assert way(scheme, where, inputs) == "the C++ kernel, pairs beyond the reach apart"
    assert_same(scheme, where, inputs)


@pytest.mark.usefixtures("split")
@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
def test_errors_in_16_bits_are_those_of_the_reference(name, type):
    where, scheme = Geometry.causal(300), made((CLIPPED | SCHEMES)[name]())
    inputs = random_qkv(where, dtype=type)
    assert way(scheme, where, inputs).startswith("the C++ kernel")
    assert_same(scheme, where, inputs)


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
def test_whole_blocks_agree(name):
    where, scheme = Geometry.causal(700), made((CLIPPED | SCHEMES)[name]())
    inputs = random_qkv(where, batch=1, heads=4, kv_heads=1, dtype=torch.float32)
    apart = name != "transformer_xl"
    assert way(scheme, where, inputs).endswith("pairs beyond the reach apart" if apart else "all pairs in blocks")
    assert_same(scheme, where, inputs)


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("name", ["shaw", "deberta"])
def test_several_threads_agree(name):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        where, scheme = LONG["packed"](300), made(CLIPPED[name]())
        assert_same(scheme, where, random_qkv(where, dtype=torch.float32))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.usefixtures("split")
def test_values_may_have_another_width_and_vectors_may_be_frozen():
    where, scheme = Geometry.causal(300), made(CLIPPED["shaw"]()).requires_grad_(False)
    q, k, _ = random_qkv(where, dtype=torch.float32)
    scheme.values = None
    v = torch.randn(2, 2, 300, 3).requires_grad_()
    assert_same(scheme, where, (q, k, v))


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("name", ["shaw", "deberta"])
def test_second_derivatives_are_those_of_the_formula(name, monkeypatch):
    monkeypatch.setattr("ordinate.attention._double_backward.MAX_BLOCK_SCORES", 2**16)
    where, scheme = Geometry.causal(300), made(CLIPPED[name]())
    inputs = random_qkv(where, dtype=torch.float32)
    assert way(scheme, where, inputs) == "the C++ kernel, pairs beyond the reach apart"
    assert_second_gradients_agree("relative_vectors", scheme, where, torch.float32)


@pytest.mark.usefixtures("small_blocks")
def test_a_view_with_a_wrong_first_entry_is_detected(monkeypatch):
    view = offset_vectors.skewed_pairs
    monkeypatch.setattr(offset_vectors, "skewed_pairs", lambda x, columns, first: view(x, columns, max(first - 1, 0)))
    where, scheme = Geometry.causal(17), made(SCHEMES["music"]())
    with pytest.raises(AssertionError, match="output"):
        assert_same(scheme, where, random_qkv(where, dtype=torch.float32))


@pytest.mark.usefixtures("split")
def test_pairs_that_are_counted_twice_are_detected(monkeypatch):
    whole = relative_vector_native.split_at_reach

    def wider(where, reach, rows):
        made = whole(where, reach, rows)
        return made._replace(near=made.near._replace(begin=made.near.begin - 1))

    monkeypatch.setattr(relative_vector_native, "split_at_reach", wider)
    where, scheme = Geometry.causal(300), made(CLIPPED["shaw"]())
    with pytest.raises(AssertionError, match="output"):
        assert_same(scheme, where, random_qkv(where, dtype=torch.float32))


@pytest.mark.usefixtures("split")
def test_a_gradient_by_the_sums_of_one_run_alone_is_detected(monkeypatch):
    monkeypatch.setattr(
        relative_vector_native.Results, "share_of", lambda self, whole: torch.ones_like(self.softmax[0])
    )
    where, scheme = Geometry.causal(300), made(CLIPPED["shaw"]())
    with pytest.raises(AssertionError, match="values"):
        assert_same(scheme, where, random_qkv(where, dtype=torch.float32))


LARGE = "vectors are so large beside queries and keys that digits would be lost"
NEAR = "most pairs have a vector of their own offset for the key or the value"


@pytest.mark.parametrize(
    ("make", "type", "scale", "says"),
    [
        (lambda: Shaw(head_width=8, past=3), torch.float64, None, "float64 is not supported by the C++ kernel"),
        (lambda: Shaw(head_width=8, past=300), torch.float32, None, NEAR),
        (lambda: Deberta(**SIZES, width=12, max_distance=300), torch.float32, None, NEAR),
        (lambda: Shaw(head_width=8, past=3), torch.float32, 1e-38, "scores may overflow float32"),
        (lambda: Shaw(head_width=8, past=3), torch.float32, 0.0, "vectors are divided by the scale, which is 0"),
        (lambda: made(CLIPPED["deberta"]()), torch.float32, 1e-3, LARGE),
    ],
)
@pytest.mark.usefixtures("split")
def test_other_calls_are_left_to_pytorch(make, type, scale, says):
    where, scheme = Geometry.causal(300), make().to(type)
    inputs = random_qkv(where, dtype=type)
    told = explain(*inputs, scheme.at(where), backend="relative_vectors", scale=scale)
    assert told.way == f"in plain PyTorch: {says}"


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("scale", [3e-3, 0.03, -1e-4])
def test_a_small_scale_costs_no_digits(scale):
    where, scheme = Geometry.causal(300), made(CLIPPED["deberta"]())
    inputs = [x.detach() for x in random_qkv(where, dtype=torch.float32)]
    plain = attend(*inputs, scheme.at(where), backend="reference", scale=scale)
    wide = deepcopy(scheme).double().at(where)
    exact = attend(*(x.double() for x in inputs), wide, backend="reference", scale=scale)
    assert_as_close(attend(*inputs, scheme.at(where), backend="relative_vectors", scale=scale), plain, exact)


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_vectors_out_of_range_are_left_to_pytorch(bad):
    where, scheme = Geometry.causal(300), made(CLIPPED["deberta"]())
    with torch.no_grad():
        # of past keys
        scheme.table[-1] = bad
    inputs = random_qkv(where, dtype=torch.float32)
    assert way(scheme, where, inputs) == "in plain PyTorch: scores may overflow float32"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("tokens", [100, 700])
def test_vectors_of_offsets_that_no_query_sees_may_be_anything(tokens, bad):
    where, scheme = Geometry.causal(tokens), made(Shaw(head_width=8, past=3, future=2, values=False))
    inputs = random_qkv(where, dtype=torch.float32)
    expected = results(scheme, where, inputs, "relative_vectors")
    with torch.no_grad():
        scheme.keys[:, 4:] = bad
    found = results(scheme, where, inputs, "relative_vectors")
    for name in ("output", "q", "k", "v"):
        assert torch.equal(found[name], expected[name]), name


@pytest.mark.parametrize(
    ("name", "where", "least"),
    [
        ("music", Geometry.causal(1020), 2**20),
        ("music", Geometry.full(1440), 2**21),
        ("shaw", Geometry.causal(1440), 2**21),
        ("deberta", Geometry.causal(2040), 2**22),
    ],
    ids=str,
)
def test_short_texts_are_left_to_pytorch(name, where, least, monkeypatch):
    monkeypatch.setattr(backend, "MIN_NATIVE_PAIRS", (2**20, 2**21, 2**22))
    scheme, few = CLIPPED[name](), f"the C++ kernel gains nothing with fewer than {least} query-key pairs in a head"
    inputs = random_qkv(where, batch=1, dtype=torch.float32)
    assert way(scheme, where, inputs) == f"in plain PyTorch: {few}"


def test_few_heads_and_many_threads_are_left_to_pytorch(monkeypatch):
    where, scheme = Geometry.causal(1030), CLIPPED["shaw"]()
    inputs = random_qkv(where, batch=1, dtype=torch.float32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert way(scheme, where, inputs).startswith("the C++ kernel")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert way(scheme, where, inputs).endswith("the C++ kernel has work for no more than half of the threads")


def test_texts_are_left_to_pytorch_without_a_compiler(monkeypatch):
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    where, scheme = Geometry.causal(1030), CLIPPED["shaw"]()
    inputs = random_qkv(where, batch=1, dtype=torch.float32)
    assert "the C++ kernels are disabled" in way(scheme, where, inputs)


@pytest.mark.usefixtures("split")
def test_the_kernel_runs_once_for_each_part_forward_and_not_again_backward(monkeypatch):
    count, run = [], attention.forward
    monkeypatch.setattr(attention, "forward", lambda *args: count.append(1) or run(*args))
    where = Geometry.causal(300)
    inputs = random_qkv(where, batch=1, heads=1, kv_heads=1, dtype=torch.float32)
    scheme = made(Deberta(heads=1, head_width=8, **BUCKETS))
    attend(*inputs, scheme.at(where), backend="relative_vectors").sum().backward()
    # one for pairs beyond the reach, and two blocks
    assert len(count) == 3


def transposed(x):
    return x.mT.contiguous().mT


def spaced(x):
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


@pytest.mark.parametrize("layout", [transposed, spaced])
@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("name", ["transformer_xl", "music", "shaw, keys only"])
def test_inputs_may_be_laid_out_in_any_way(name, kv_heads, layout):
    where = Geometry.causal(70)
    at, plain = made(SCHEMES[name]()).at(where), random_qkv(where, kv_heads=kv_heads, dtype=torch.float32)
    assert "the C++ kernel" in str(explain(*plain, at, backend="relative_vectors").way)
    usual, other = (
        (out, *torch.autograd.grad(out.square().sum(), plain))
        for out in (
            attend(*plain, at, backend="relative_vectors"),
            attend(*map(layout, plain), at, backend="relative_vectors"),
        )
    )
    for one, same in zip(other, usual, strict=True):
        assert torch.equal(one, same)


def test_the_kernel_refuses_channels_that_are_not_contiguous():
    where = Geometry.causal(70)
    q, k, v = (x.detach() for x in random_qkv(where, heads=2, dtype=torch.float32))
    table, span = torch.zeros(2, 139), tuple(torch.tensor([[[end]] * 2] * 2) for end in (0, 70))
    given = table, where, attention.Scoring(1.0), span, False
    assert attention.forward(q, k, v, *given)[0].isfinite().all()
    with pytest.raises(RuntimeError, match=r"^attention: k has strides .*channels must be contiguous"):
        attention.forward(q, transposed(k), v, *given)
