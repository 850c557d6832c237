"""Second derivatives, and the transforms of torch.func, by every backend."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions
from ordinate.attention.backends import custom_formula, native, offset_bias, relative_vectors, row_blocks
from ordinate.ops import offset_bias_attention, rotate
from ordinate.ops.native import build
from ordinate.schemes import T5, Alibi, Cope, Fire, NoPosition, Rope, Shaw
from ordinate.testing.backend import GEOMETRIES, assert_second_gradients_agree, random_qkv


def t5():
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


@pytest.fixture(autouse=True)
def _every_size(monkeypatch):
    """Backends for long sequences take short ones, in several blocks."""
    for module in (native, offset_bias, relative_vectors, row_blocks):
        monkeypatch.setattr(module, "MIN_PAIRS", 0)
    monkeypatch.setattr(native, "MIN_HEAD_PAIRS", 0)
    monkeypatch.setattr(row_blocks, "MIN_CAUSAL_PAIRS", 0)
    monkeypatch.setattr(row_blocks, "MIN_OTHER_PAIRS", 0)
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 30)
    monkeypatch.setattr(row_blocks, "MAX_BLOCK_SCORES", 60)
    monkeypatch.setattr("ordinate.attention._double_backward.MAX_BLOCK_SCORES", 200)
    monkeypatch.setattr("ordinate.ops.sdpa.MAX_BLOCK_SCORES", 200)
    monkeypatch.setattr(offset_bias, "sdpa_is_slow", lambda: True)


SOFTCAP = ScoreOptions(softcap=2.0)
CASES = [
    *(("offset_bias", name) for name in ("none", "alibi", "t5")),
    *(("row_blocks", name) for name in ("alibi", "t5", "fire", "shaw", "cope")),
    *(("sdpa", name) for name in ("none", "alibi", "t5")),
    ("relative_vectors", "shaw"),
    ("custom_formula", "t5"),
    ("reference", "t5"),
]
SCHEMES = {
    "none": NoPosition,
    "alibi": lambda: Alibi(heads=4),
    "t5": t5,
    "fire": lambda: Fire(heads=4),
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "cope": lambda: Cope(head_width=8, max_positions=4),
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("backend", "name"), [("offset_bias", "t5"), ("row_blocks", "fire"), ("relative_vectors", "shaw")]
)
def test_autocast_where_backward_is_called_rounds_no_gradient(backend, name, twice, monkeypatch):
    # oneDNN's products ignore autocast
    monkeypatch.setattr("ordinate.ops.matmul.onednn_is_faster", lambda: False)
    where, scheme = Geometry.causal(24), SCHEMES[name]()
    q, k, v = (x.detach().requires_grad_() for x in random_qkv(where, dtype=torch.float32))
    out = attend(q, k, v, scheme.at(where), backend=backend)

    def gradients():
        found = torch.autograd.grad(out, (q, k, v), torch.ones_like(out), create_graph=twice, retain_graph=True)
        if twice:
            found = torch.autograd.grad(sum(x.square().sum() for x in found), (q, k, v), retain_graph=True)
        return found

    exact = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = gradients()
    for one, two in zip(exact, rounded, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", ["causal", "full", "window", "packed", "left", "cross", "cached"])
@pytest.mark.parametrize(("backend", "name"), CASES)
def test_second_gradients_agree_with_the_reference(backend, name, geometry):
    options = {"score_options": ScoreOptions(2.0, torch.randn(4, dtype=torch.float64).requires_grad_())}
    given = options if backend == "custom_formula" else {}
    assert_second_gradients_agree(backend, SCHEMES[name]().double(), GEOMETRIES[geometry](11), **given)


@pytest.mark.extended
@pytest.mark.parametrize("given", [{}, {"score_options": SOFTCAP}])
def test_they_agree_in_cpp(given, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("attention") is not None:
        pytest.skip("there is no compiler")
    for geometry in ("causal", "window", "left", "cached"):
        assert_second_gradients_agree("native", t5(), GEOMETRIES[geometry](21), torch.float32, **given)


def test_a_backend_that_drops_them_is_caught(monkeypatch):
    def drops(fast, formula, inputs, upstream):
        with torch.no_grad():
            return tuple(fast(*upstream))

    monkeypatch.setattr(offset_bias, "gradients", drops)
    with pytest.raises(AssertionError, match="the gradients by offset_bias have no graph"):
        assert_second_gradients_agree("offset_bias", t5().double(), Geometry.causal(9))


def test_a_gradient_penalty_is_not_dropped_at_any_size(monkeypatch):
    monkeypatch.undo()
    for tokens in (30, 300):
        q, k, v = torch.randn(3, 3, 2, tokens, 8, dtype=torch.float64)
        at = Alibi(heads=2).at(Geometry.causal(tokens))
        made, exact = (
            torch.autograd.functional.hvp(
                lambda x, b=backend, k=k, v=v, at=at: attend(x, k, v, at, backend=b).square().sum(), q, q
            )[1]
            for backend in (None, "reference")
        )
        assert exact.abs().max() > 1
        torch.testing.assert_close(made, exact)


def test_third_derivatives_agree_too():
    def third(backend):
        q, k, v = random_qkv(Geometry.causal(7), dtype=torch.float64)
        out = attend(q, k, v, Alibi(heads=4).at(Geometry.causal(7)), backend=backend)
        one = torch.autograd.grad(out.square().sum(), q, create_graph=True)[0]
        two = torch.autograd.grad(one.square().sum(), k, create_graph=True)[0]
        return torch.autograd.grad(two.square().sum(), v)[0]

    for backend in ("sdpa", "offset_bias", "row_blocks"):
        torch.manual_seed(0)
        made = third(backend)
        torch.manual_seed(0)
        torch.testing.assert_close(made, third("reference"))


def gradients_of_many(backend, scheme, dtype, *, graph=False):
    """Gradients for three upstream gradients at once, and for one after the other."""
    where = Geometry.causal(11)
    q, k, v = random_qkv(where, dtype=dtype)
    given = {"score_options": SOFTCAP} if backend == "custom_formula" else {}
    out = attend(q, k, v, scheme.to(dtype).at(where), backend=backend, **given)
    leaves = [q, k, v, *(p for p in scheme.parameters() if p.requires_grad)]
    many = torch.randn(3, *out.shape, dtype=dtype)
    options = {"retain_graph": True, "create_graph": graph}
    together = torch.autograd.grad(out, leaves, many, is_grads_batched=True, **options)
    each = [torch.autograd.grad(out, leaves, one, **options) for one in many]
    return q, together, [torch.stack(x) for x in zip(*each, strict=True)]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("backend", "name"), CASES)
def test_gradients_of_many_outputs_at_once_are_those_of_each(backend, name, graph):
    """As in `torch.autograd.functional.jacobian(vectorize=True)`, also where they are differentiated again."""
    q, together, each = gradients_of_many(backend, SCHEMES[name](), torch.float64, graph=graph)
    for one, other in zip(together, each, strict=True):
        torch.testing.assert_close(one, other)
    if graph:
        one, other = (torch.autograd.grad(x[1].square().sum(), q, retain_graph=True)[0] for x in (together, each))
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["t5", "rope"])
def test_gradients_of_many_outputs_at_once_in_cpp(name, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    for kernel in ("attention", "rotation"):
        if build.unavailable_reason(kernel) is not None:
            pytest.skip("there is no compiler")
    monkeypatch.setattr(rotate, "MIN_NATIVE_ELEMENTS", 0)
    scheme = Rope(head_width=8) if name == "rope" else t5()
    _, together, each = gradients_of_many("native", scheme, torch.float32)
    for one, other in zip(together, each, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_is_the_same_in_all_derivatives():
    """gradgradcheck of a function with a fixed seed: the dropped weights stay dropped."""
    q, k, v = (x.detach()[:1, :2, :6, :4] for x in random_qkv(Geometry.causal(6), kv_heads=4, dtype=torch.float64))
    table = torch.randn(2, 11, dtype=torch.float64).masked_fill(torch.arange(11) > 5, float("-inf"))
    drop = offset_bias_attention.Dropout(0.4, 1)

    def run(q, k, v):
        return offset_bias._Tiles.apply(q, k, v, table, Geometry.causal(6), 0.5, drop)

    leaves = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


def test_dropout_in_pytorchs_kernel_has_first_derivatives_only():
    q, k, v = (x.detach().requires_grad_() for x in random_qkv(Geometry.full(9), dtype=torch.float32))
    out = attend(q, k, v, NoPosition().at(Geometry.full(9)), dropout=0.5, backend="sdpa")
    if not out.grad_fn.name().startswith("ScaledDotProduct"):
        return
    with pytest.raises(ValueError, match=r"attention need no dropout; got dropout 0\.5; set"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


# PyTorch itself calls it when forward-mode rules are first loaded
LOADING = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.mark.covering(1)
@LOADING
@pytest.mark.parametrize("scheme", [NoPosition(), Alibi(heads=4), t5(), Rope(head_width=8), Shaw(head_width=8)])
@pytest.mark.parametrize("tokens", [5, 40])
def test_transforms_of_torch_func_work_on_the_default_path(scheme, tokens):
    scheme, where = scheme.double(), Geometry.causal(tokens)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))

    def loss(q, k, v):
        at = scheme.at(where)
        return attend(q[None], k[None], v[None], at).square().sum()

    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = torch.autograd.grad(sum(loss(*rows) for rows in zip(*leaves, strict=True)), leaves)
    for one, other in zip(vmap(grad(loss, argnums=(0, 1, 2)))(q, k, v), exact, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(
        jvp(lambda q: loss(q[0], k[0], v[0]), (q,), (q,))[1], (exact[0][0] * q[0]).sum(), atol=1e-9, rtol=1e-9
    )
    weights = torch.ones(2, dtype=torch.float64)

    def scaled(w):
        return loss(w[0] * q[0], w[1] * k[0], v[0])

    torch.testing.assert_close(hessian(scaled)(weights), torch.autograd.functional.hessian(scaled, weights))


@LOADING
def test_forward_mode_differentiation_works_without_torch_func():
    q, k, v = (x.detach() for x in random_qkv(Geometry.causal(9), dtype=torch.float64))
    at = Alibi(heads=4).at(Geometry.causal(9))
    with forward_ad.dual_level():
        out = attend(forward_ad.make_dual(q, torch.ones_like(q)), k, v, at)
        tangent = forward_ad.unpack_dual(out).tangent
    near = (attend(q + 1e-6, k, v, at) - attend(q - 1e-6, k, v, at)) / 2e-6
    torch.testing.assert_close(tangent, near, atol=1e-6, rtol=1e-6)


def test_meta_and_fake_tensors_have_a_backend():
    where = Geometry.causal(9, device="meta")
    q, k, v = (x.detach().to("meta") for x in random_qkv(Geometry.causal(9), dtype=torch.float32))
    at = Alibi(heads=4).at(where)
    assert attend(q, k, v, at).shape == q.shape
    assert explain(q, k, v, at).unsupported["sdpa"] == "meta and fake tensors have no values"
    with FakeTensorMode():
        where = Geometry.causal(9)
        q, k, v = random_qkv(where, dtype=torch.float32)
        assert attend(q, k, v, Alibi(heads=4).at(where)).shape == q.shape


def test_a_named_backend_says_why_it_cannot_be_transformed():
    q, k, v = (x.detach() for x in random_qkv(Geometry.full(9), dtype=torch.float32))
    at = NoPosition().at(Geometry.full(9))
    with pytest.raises(ValueError, match=r"it does not: transforms of torch\.func cannot trace it"):
        vmap(lambda q, k, v: attend(q[None], k[None], v[None], at, backend="sdpa"))(q, k, v)


@pytest.mark.parametrize(
    ("backend", "name", "where"),
    [
        ("window", "none", Geometry.causal(300, window=3)),
        ("window", "t5", Geometry.causal(300, window=3)),
        ("key_padding", "none", Geometry.padded(torch.arange(11) < torch.tensor([[11], [6]]), causal=False)),
        ("decode", "t5", Geometry.causal(2, cached=9)),
    ],
)
def test_second_gradients_agree_for_special_geometries(backend, name, where):
    assert_second_gradients_agree(backend, SCHEMES[name]().double(), where)
