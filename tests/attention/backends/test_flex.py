from dataclasses import replace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall, ScoreOptions, log_sum_exp, reference_attention
from ordinate.attention._block_mask import block_mask, visible_blocks
from ordinate.attention.backends import flex
from ordinate.core.devices import as_if_on
from ordinate.schemes import T5, Alibi, NoPosition
from ordinate.schemes.cope import Cope
from ordinate.testing.backend import GEOMETRIES, random_qkv

# without a GPU FlexAttention is called uncompiled, and warns about it
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def t5() -> T5:
    """T5 with a bias table large enough that a missing bias is detected."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme.requires_grad_(False)


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}


def call_of(scheme, where, *, type=torch.float32, width=16, dropout=0.0, kv_heads=2, **options):
    q, k, v = (x.detach() for x in random_qkv(where, dtype=type, width=width, kv_heads=kv_heads))
    return AttentionCall(q, k, v, scheme.at(where), 0.3, dropout, ScoreOptions(**options))


def exact_of(call):
    wide = replace(call, q=call.q.double(), k=call.k.double(), v=call.v.double())
    return reference_attention(wide), log_sum_exp(wide)


@pytest.mark.covering(0)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_uncompiled_flex_attention_agrees_with_the_reference(name, geometry, kv_heads):
    call = call_of(SCHEMES[name](), GEOMETRIES[geometry](17), kv_heads=kv_heads)
    assert flex.unsupported_reason(call) is None
    exact = attend(*(x.double() for x in (call.q, call.k, call.v)), call.at, scale=0.3, backend="reference")
    assert torch.allclose(flex.run_flex_attention(call, flex_attention)[0].double(), exact, rtol=0, atol=2e-6)


def test_a_missing_scale_is_detected():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    exact = attend(call.q, call.k, call.v, call.at, backend="reference")
    assert not torch.allclose(flex.run_flex_attention(call, flex_attention)[0], exact, rtol=0, atol=2e-6)


def test_it_is_rejected_on_a_cpu():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    with pytest.raises(
        ValueError, match="the backend 'flex' must support the call; it does not: only GPUs are supported"
    ):
        attend(call.q, call.k, call.v, call.at, backend="flex")
    assert explain(call.q, call.k, call.v, call.at).unsupported["flex"] == "only GPUs are supported"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dropout": 0.1}, "dropout is not supported"),
        ({"type": torch.float64}, "float64 is not supported"),
        ({"width": 8}, "a head has fewer than 16 channels"),
        ({"where": Geometry.causal(0)}, "a tensor is empty"),
        (
            {"where": Geometry.from_positions(torch.rand(1, 5, 1))},
            "the bias depends on more than the offset in memory order",
        ),
        ({"scheme": Cope(head_width=16)}, "the scheme's content_bias depends on more than the offset"),
    ],
)
def test_unsupported_calls_are_rejected(changed, says):
    given = {"scheme": Alibi(heads=4), "where": Geometry.causal(5)} | changed
    assert flex.unsupported_reason(call_of(**given)) == says


def test_each_form_of_call_is_compiled_once_with_its_own_code():
    one, other = flex.compile_for(("one", 16)), flex.compile_for(("other", 16))
    assert one is flex.compile_for(("one", 16))
    codes = [made.__wrapped__.__code__ for made in (one, other)]
    assert codes[0] is not codes[1]
    assert codes[0] != codes[1]


def test_no_bias_tensor_of_queries_times_keys_is_held():
    call = call_of(Alibi(heads=4), Geometry.causal(2000))
    assert BACKENDS["flex"].workspace_bytes(call) < 2000 * 2000


@pytest.mark.covering(0)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_soft_cap_sinks_and_log_sum_exp_agree_with_the_reference(name, geometry):
    call = call_of(SCHEMES[name](), GEOMETRIES[geometry](17), softcap=0.5, sinks=torch.randn(4))
    out, total = flex.run_flex_attention(call, flex_attention, lse=True)
    exact, exact_total = exact_of(call)
    assert torch.allclose(out.double(), exact, rtol=0, atol=2e-6)
    assert torch.allclose(total.double(), exact_total, rtol=0, atol=2e-6)


def test_the_log_sum_exp_of_a_query_that_sees_nothing_is_minus_infinity():
    call = call_of(NoPosition(), Geometry.padded(torch.tensor([[False, True, True]] * 2)))
    _, total = flex.run_flex_attention(call, flex_attention, lse=True)
    assert bool((total[:, :, 0] == -torch.inf).all())
    assert bool(total[:, :, 1:].isfinite().all())


LONG = {
    "causal": Geometry.causal(300),
    "exact": Geometry.causal(384),
    "cached": Geometry.causal(150, cached=200),
    "window": Geometry.causal(500, window=140),
    "two sides": Geometry.full(500, window=140),
    "packed": Geometry.packed([10, 290, 200]),
    "packed, window": Geometry.packed([10, 290, 200], window=3),
    "both ways": Geometry.packed([128, 300, 84], causal=False),
    "cross": Geometry.cross(140, 300, real=torch.arange(300)[None] < torch.tensor([[100], [300]])),
    "left": Geometry.padded(torch.arange(300)[None] >= torch.tensor([[140], [0]])),
    "shuffled": replace(
        Geometry.full(300), q_document=torch.arange(300)[None] % 3, k_document=torch.arange(300)[None] % 3
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_blocks_are_visible_as_their_pairs_are(name):
    where = LONG[name]
    some, whole = visible_blocks(where)
    seen = torch.zeros(some.shape[0], *(128 * size for size in some.shape[1:]), dtype=torch.bool)
    seen[:, : where.shape[0], : where.shape[1]] = where.visible
    tiles = seen.unflatten(2, (-1, 128)).unflatten(1, (-1, 128)).transpose(2, 3).flatten(3)
    # a block may be in doubt, but none is left out, or taken as a whole wrongly
    assert not bool((tiles.any(-1) & ~some).any())
    assert not bool((whole & ~tiles.all(-1)).any())
    if where.q_document is None:
        assert torch.equal(some, tiles.any(-1))
        assert torch.equal(whole, tiles.all(-1))


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("name", LONG)
def test_the_block_mask_gives_the_reference_across_blocks(name):
    call = call_of(t5(), LONG[name])
    out, _ = flex.run_flex_attention(call, flex_attention)
    assert torch.allclose(out.double(), exact_of(call)[0], rtol=0, atol=5e-6)
    made = block_mask(LONG[name])
    assert made.kv_num_blocks.dtype == torch.int32


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")
@pytest.mark.parametrize("geometry", ["causal", "packed", "window"])
@pytest.mark.parametrize("name", SCHEMES)
def test_compiled_it_agrees_with_the_reference_at_several_lengths(name, geometry, untyped):
    compiled = flex.compile_for((name, geometry))
    for tokens in (130, 200, 257, 300):
        call = call_of(SCHEMES[name](), GEOMETRIES[geometry](tokens))
        with torch.no_grad():
            out, _ = flex.run_flex_attention(call, compiled)
        assert torch.allclose(out.double(), exact_of(call)[0], rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"scheme": NoPosition()}, "PyTorch's own attention needs no mask here, and is faster"),
        ({"where": Geometry.causal(1000)}, "there are fewer than 1024 keys, for which a mask is small"),
        ({"where": Geometry.causal(20, cached=1100)}, "the queries continue a cache"),
    ],
)
def test_on_a_gpu_calls_that_others_compute_better_are_left_to_them(changed, says):
    given = {"scheme": Alibi(heads=4), "where": Geometry.causal(1100)} | changed
    with as_if_on("cuda"):
        assert says in BACKENDS["flex"].unsupported_reason(call_of(**given))


def test_on_a_gpu_it_is_taken_before_a_mask_once_it_is_proved(monkeypatch):
    asked = []
    monkeypatch.setattr(flex, "unproved_reason", lambda *given: asked.append(given))
    call = call_of(t5(), Geometry.causal(1100))
    with as_if_on("cuda"):
        told = explain(call.q, call.k, call.v, call.at)
        assert told.backend == "flex"
        assert [name for name, _ in asked] == ["flex"]
        monkeypatch.setattr(flex, "unproved_reason", lambda *given: "it does not compile")
        told = explain(call.q, call.k, call.v, call.at)
    assert (told.backend, told.unsupported["flex"]) == ("sdpa", "it does not compile")
    # the mask, of which there is none in the other
    assert told.workspace_bytes > 4 * 4 * 1100 * 1100
