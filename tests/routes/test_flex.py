import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from ordinate import T5, Alibi, Geometry, Unmarked, attend, explain
from ordinate.attention import ROUTES
from ordinate.route import Call
from ordinate.routes import flex
from ordinate.schemes.cope import Cope
from ordinate.testing.route import GEOMETRIES, draw

# without a GPU the function itself is called, which says that it is meant to be compiled
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def t5() -> T5:
    """With a table large enough that a lost bias cannot hide."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme.requires_grad_(False)


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5}


def call_of(scheme, where, *, type=torch.float32, width=16, dropout=0.0, kv_heads=2):
    q, k, v = (x.detach() for x in draw(where, type=type, width=width, kv_heads=kv_heads))
    return Call(q, k, v, scheme.at(where), 0.3, dropout)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_uncompiled_it_is_what_the_reference_is(name, geometry, kv_heads):
    call = call_of(SCHEMES[name](), GEOMETRIES[geometry](17), kv_heads=kv_heads)
    assert flex.unfit(call) is None
    exact = attend(*(x.double() for x in (call.q, call.k, call.v)), call.at, scale=0.3, route="reference")
    assert torch.allclose(flex.flexed(call, flex_attention).double(), exact, rtol=0, atol=2e-6)


def test_a_lost_scale_is_noticed():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    exact = attend(call.q, call.k, call.v, call.at, route="reference")
    assert not torch.allclose(flex.flexed(call, flex_attention), exact, rtol=0, atol=2e-6)


def test_on_a_cpu_it_refuses_and_elsewhere_it_must_be_named():
    call = call_of(Alibi(heads=4), Geometry.causal(17))
    with pytest.raises(ValueError, match="the route 'flex' must take the call; it refuses: it is made for GPUs"):
        attend(call.q, call.k, call.v, call.at, route="flex")
    assert "flex" not in explain(call.q, call.k, call.v, call.at, route=None).refused
    assert ROUTES["flex"].order > ROUTES["reference"].order


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dropout": 0.1}, "it drops nothing"),
        ({"type": torch.float64}, "it computes in float32"),
        ({"width": 8}, "a head has fewer than 16 channels"),
        ({"where": Geometry.causal(0)}, "a tensor is empty"),
        ({"where": Geometry.given(torch.rand(1, 5, 1))}, "the bias is no table of distances in this geometry"),
        ({"scheme": Cope(head_width=16)}, "the scheme's content_bias is no table of distances"),
    ],
)
def test_what_it_cannot_do_it_refuses(changed, says):
    given = {"scheme": Alibi(heads=4), "where": Geometry.causal(5)} | changed
    assert flex.unfit(call_of(**given)) == says


def test_each_form_has_a_function_of_its_own_and_keeps_it():
    one, other = flex.compiled(("one", 16)), flex.compiled(("other", 16))
    assert one is flex.compiled(("one", 16))
    codes = [made.__wrapped__.__code__ for made in (one, other)]
    assert codes[0] is not codes[1]
    assert codes[0] != codes[1]


def test_it_holds_no_bias_of_queries_times_keys():
    call = call_of(Alibi(heads=4), Geometry.causal(2000))
    assert ROUTES["flex"].bytes(call) < 2000 * 2000
