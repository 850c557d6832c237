"""Near keys by Triton's interpreter and far keys by PyTorch's kernel for CPUs: run by test_near_far.py.

TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/attention/backends/near_far_interpreted.py
"""

import importlib

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import _proof_case, _proof_structure
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention.backends import near_far as backend
from ordinate.ops.triton import operators, vector_operators
from ordinate.schemes import T5, Deberta, Shaw, Sum, TransformerXl
from ordinate.testing.backend import assert_second_gradients_agree, random_qkv
from tests.attention.backends.triton_content_interpreted import assert_agrees
from tests.attention.backends.triton_interpreted import mutate


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret


def drawn(scheme):
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    return scheme


SCHEMES = {
    "t5": lambda: drawn(T5(heads=2, buckets=8, max_distance=12)),
    "shaw": lambda: drawn(Shaw(head_width=8, past=5)),
    "shaw of each head": lambda: drawn(Shaw(head_width=8, heads=2, past=9)),
    "shaw without values": lambda: drawn(Shaw(head_width=8, past=5, values=False)),
    "shaw and t5": lambda: drawn(Sum(Shaw(head_width=8, past=5), T5(heads=2, buckets=8, max_distance=7))),
    "deberta": lambda: Deberta(width=16, heads=2, head_width=8, buckets=4, max_distance=8),
}
SUPPORTED = [name for name in SCHEMES if name != "deberta"]


def inputs(tokens, type=torch.float32):
    return random_qkv(Geometry.causal(tokens), batch=1, heads=2, kv_heads=1, dtype=type)


@pytest.mark.parametrize(("tokens", "name"), [*((40, name) for name in SUPPORTED), (20, "t5"), (90, "shaw")])
def test_it_agrees_with_the_reference_forward_and_backward(name, tokens):
    assert_agrees(SCHEMES[name](), Geometry.causal(tokens), inputs(tokens), backend="near_far")


def transposed(tokens):
    """Inputs whose channels are not contiguous."""
    return [x.detach().mT.contiguous().mT.requires_grad_() for x in inputs(tokens)]


@pytest.mark.parametrize("name", ["t5", "shaw"])
def test_channels_need_not_be_contiguous(name):
    assert_agrees(SCHEMES[name](), Geometry.causal(40), transposed(40), backend="near_far")


def test_a_mutant_that_gives_pytorch_other_strides_is_killed(monkeypatch, tmp_path):
    mutate("near_far", "(contiguous_channels(x) for x in given[:3])", "given[:3]", monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        test_channels_need_not_be_contiguous("t5")


@pytest.mark.parametrize("make", [lambda: T5(heads=4, buckets=8, max_distance=12), SCHEMES["shaw"]])
def test_second_gradients_agree(make):
    assert_second_gradients_agree("near_far", drawn(make()), Geometry.causal(23), torch.float32)


@pytest.mark.parametrize("name", ["t5", "shaw", "shaw without values"])
def test_the_self_check_covers_it(name, monkeypatch):
    # the interpreter's tiles are small
    monkeypatch.setattr(_proof_structure, "BEYOND", 100)
    monkeypatch.setattr(_proof_structure, "SIZES", ((144, 128),))
    where = Geometry.causal(40)
    call = AttentionCall(*(x.detach() for x in inputs(40)), SCHEMES[name]().at(where), 0.3, 0.0, ScoreOptions())
    for gradients in (False, True):
        assert _proof_case.disagreement(BACKENDS["near_far"], call, gradients=gradients) is None


@pytest.mark.parametrize("needed", [(), ("q",), ("k", "v"), ("scheme",)])
@pytest.mark.parametrize("name", ["t5", "shaw"])
def test_only_what_is_asked_for_has_a_gradient(name, needed):
    scheme, where = SCHEMES[name]().requires_grad_("scheme" in needed), Geometry.causal(40)
    tensors = dict(zip("qkv", (x.detach() for x in inputs(40)), strict=True))
    for one in set(needed) & set("qkv"):
        tensors[one].requires_grad_()
    out = attend(**tensors, at=scheme.at(where), backend="near_far")
    assert out.requires_grad == bool(needed)
    if needed:
        out.sum().backward()
        assert [name for name, x in tensors.items() if x.grad is not None] == [one for one in needed if one in "qkv"]
        assert all((x.grad is not None) == ("scheme" in needed) for x in scheme.parameters())


@pytest.mark.parametrize(
    ("scheme", "where", "says"),
    [
        (SCHEMES["t5"], Geometry.causal(40, window=20), "only a causal mask of one document"),
        (SCHEMES["t5"], Geometry.causal(30, cached=10), "only a causal mask of one document"),
        (SCHEMES["t5"], Geometry.full(40), "only a causal mask of one document"),
        (SCHEMES["shaw"], Geometry.packed([20, 20]), "only a causal mask of one document"),
        (SCHEMES["t5"], Geometry.causal(12), "constant from no distance on"),
        (lambda: T5(heads=2, max_distance=200), Geometry.causal(300), "from a distance of 128 tokens on"),
        (lambda: TransformerXl(width=16, heads=2, head_width=8), Geometry.causal(40), "from no distance on"),
        (SCHEMES["deberta"], Geometry.causal(40), "a bias of its own"),
    ],
)
def test_unsupported_calls_are_refused_with_a_reason(scheme, where, says):
    q, k, v = random_qkv(where, heads=2, kv_heads=2, dtype=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme().at(where), backend="near_far")


@pytest.mark.parametrize("tokens_first", [False, True])
def test_the_operators_say_what_they_return(tokens_first):
    q, k, v = (x.detach() for x in inputs(40))
    # as projections leave them: PyTorch's kernels lay out their output as the queries
    q = q.transpose(1, 2).contiguous().transpose(1, 2) if tokens_first else q
    rest = [[1, 0, 0, 12, 1], [0.3, 0.0]]
    given = [torch.randn(2, 13), *[None] * 7], *rest
    checks = ["test_schema", "test_faketensor"]
    torch.library.opcheck(torch.ops.ordinate.triton_near_far.default, (q, k, v, *given), test_utils=checks)
    saved = torch.randn_like(q), [q, k, v, *operators.near_far(q, k, v, *given)]
    backward = torch.ops.ordinate.triton_near_far_backward.default
    torch.library.opcheck(backward, (*saved, *given, True), test_utils=checks)
    vectors = torch.randn(1, 13, 8)
    given = [None, None, vectors, None, vectors, None, None], *rest
    torch.library.opcheck(torch.ops.ordinate.triton_near_far_vectors.default, (q, k, v, *given), test_utils=checks)
    saved = torch.randn_like(q), [q, k, v, *vector_operators.near_far(q, k, v, *given)]
    backward = torch.ops.ordinate.triton_near_far_vectors_backward.default
    learned = [False, True, False, True]
    torch.library.opcheck(backward, (*saved, *given, learned), test_utils=checks)


def test_it_is_explained():
    told = explain(*inputs(40), SCHEMES["shaw"]().at(Geometry.causal(40)), backend="near_far")
    # the output of the farther keys, beside numbers of each query and key
    assert 2 * 35 * 8 * 4 < told.workspace_bytes < 3 * 2 * 40 * 8 * 4
    # a small case of a proof has farther keys
    assert _proof_structure.LARGER[-1] > backend.MAX_REACH + _proof_structure.BEYOND


# file, what stands there, what stands there in the mutant, and the scheme that finds it
MUTANTS = [
    ("near_far", "window=given.origin", "window=given.origin + 1", "t5"),
    ("near_far", "- given.table[:, :1]", "", "t5"),
    ("near_far", "made.table[:, 0] = -made", "made.table[:, 0] = made", "t5"),
    ("backward", "j < where.keys - less", "j < where.keys - less - 1", "t5"),
    ("backward", "tile * ROWS - less", "tile * ROWS", "t5"),
    ("backward", "(i >= less) &", "(i > less) &", "t5"),
    ("near_far", "* LOG2E + shift", "* LOG2E", "t5"),
    ("near_far", "    tl.store(place, total, mask=i < rows)\n", "", "t5"),
    ("near_far", "other += load_vector", "other -= load_vector", "shaw"),
    ("vector_near_far", "(total - shift) * LOG2", "total * LOG2", "shaw"),
    ("vector_near_far", "        kept -= carried\n", "", "shaw"),
    ("vector_near_far", "        other += carried\n", "", "shaw"),
    ("vector_near_far", "sum += change[:, None] *", "sum -= change[:, None] *", "shaw"),
    ("vector_near_far", "tl.sum(weight[:, None] * upstream, 0)", "tl.sum(upstream, 0)", "shaw"),
    ("vector_near_far", "+= shares[:, 2, 0]", "+= shares[:, 1, 0]", "shaw and t5"),
]


@pytest.mark.parametrize(("file", "text", "other", "name"), MUTANTS)
def test_a_mutant_is_killed(file, text, other, name, monkeypatch, tmp_path):
    mutate(file, text, other, monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        assert_agrees(SCHEMES[name](), Geometry.causal(40), inputs(40), backend="near_far")
