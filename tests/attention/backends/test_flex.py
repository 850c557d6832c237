import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall
from ordinate.attention.backends import flex
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


def call_of(scheme, where, *, type=torch.float32, width=16, dropout=0.0, kv_heads=2):
    q, k, v = (x.detach() for x in random_qkv(where, dtype=type, width=width, kv_heads=kv_heads))
    return AttentionCall(q, k, v, scheme.at(where), 0.3, dropout)


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_uncompiled_flex_attention_agrees_with_the_reference(name, geometry, kv_heads):
    call = call_of(SCHEMES[name](), GEOMETRIES[geometry](17), kv_heads=kv_heads)
    assert flex.unsupported_reason(call) is None
    exact = attend(*(x.double() for x in (call.q, call.k, call.v)), call.at, scale=0.3, backend="reference")
    assert torch.allclose(flex.run_flex_attention(call, flex_attention).double(), exact, rtol=0, atol=2e-6)


def test_a_missing_scale_is_detected():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    exact = attend(call.q, call.k, call.v, call.at, backend="reference")
    assert not torch.allclose(flex.run_flex_attention(call, flex_attention), exact, rtol=0, atol=2e-6)


def test_it_is_rejected_on_a_cpu_and_never_chosen_automatically():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    with pytest.raises(
        ValueError, match="the backend 'flex' must support the call; it does not: only GPUs are supported"
    ):
        attend(call.q, call.k, call.v, call.at, backend="flex")
    assert "flex" not in explain(call.q, call.k, call.v, call.at, backend=None).unsupported
    assert BACKENDS["flex"].priority > BACKENDS["reference"].priority


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
