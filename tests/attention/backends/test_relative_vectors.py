import pytest
import torch
from torch import nn

from ordinate import Geometry, attend, attend_encoded, explain
from ordinate.attention.backends import relative_vectors as backend
from ordinate.ops import relative_vector_attention, skew
from ordinate.schemes import T5, Alibi, Cope, Deberta, Encoded, HeadGroups, NoPosition, Shaw, Sum, TransformerXl
from ordinate.schemes.deberta import DebertaVersion
from ordinate.schemes.music import Music
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.tolerance import assert_as_close

SIZES = {"heads": 4, "head_width": 8}
BUCKETS = {"width": 12, "buckets": 4, "max_distance": 8}
SCHEMES = {
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "shaw, keys only": lambda: Shaw(**SIZES, per_head=True, values=False, past=0, future=4),
    "music": lambda: Music(**SIZES, max_length=9, out_of_range="zero", future=True),
    "transformer_xl": lambda: TransformerXl(**SIZES, width=12),
    "transformer_xl, clamped": lambda: TransformerXl(**SIZES, width=12, max_offset=6.5, layout="interleaved"),
    "deberta": lambda: Deberta(**SIZES, **BUCKETS),
    "deberta, mirrored": lambda: Deberta(**SIZES, **BUCKETS, terms="p2c", version=DebertaVersion(mirrored=True)),
    "sum": lambda: Sum(
        T5(heads=4),
        Deberta(**SIZES, **BUCKETS),
        Shaw(head_width=8, past=3),
        TransformerXl(**SIZES, width=12, max_offset=6),
    ),
    "heads": lambda: HeadGroups(
        Deberta(heads=1, head_width=8, **BUCKETS), Shaw(head_width=8, past=3), Alibi(heads=1), NoPosition(), heads=4
    ),
}


def made(name, type=torch.float64):
    scheme = SCHEMES[name]()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter)
    return scheme.to(type)


def results(scheme, where, inputs, name):
    out = attend(*inputs, scheme.at(where), backend=name)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).cos().to(out.dtype)
    wanted = [*inputs, *scheme.parameters()]
    slopes = torch.autograd.grad((out * weights).sum(), wanted, allow_unused=True)
    names = ["q", "k", "v", *(name for name, _ in scheme.named_parameters())]
    found = {"output": out.detach(), **dict(zip(names, slopes, strict=True))}
    return {name: torch.zeros(()) if slope is None else slope for name, slope in found.items()}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(backend, "MIN_PAIRS", 1)
    monkeypatch.setattr(relative_vector_attention, "ROWS", 5)
    monkeypatch.setattr(relative_vector_attention, "KEYS", 3)


@pytest.mark.parametrize(
    ("name", "geometry"),
    [*(("sum", geometry) for geometry in GEOMETRIES), *((name, "two sides") for name in SCHEMES), ("heads", "left")],
)
def test_it_agrees_in_outputs_and_gradients(name, geometry):
    where, scheme = GEOMETRIES[geometry](17), made(name)
    inputs = random_qkv(where, dtype=torch.float64)
    found, exact = (results(scheme, where, inputs, backend) for backend in ("relative_vectors", "reference"))
    for what, true in exact.items():
        assert_as_close(found[what].expand(true.shape), true, true, what=what)


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
def test_low_precision_errors_are_no_larger_than_those_of_the_reference(name, type):
    where, scheme = Geometry.causal(40, window=30), made(name)
    inputs = [x.detach().to(type).requires_grad_() for x in random_qkv(where, dtype=torch.float64)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = results(scheme, where, wide, "reference")
    narrow = made(name, torch.float32)
    narrow.load_state_dict(scheme.state_dict())
    scheme.load_state_dict(narrow.state_dict())
    found, plain = (results(narrow, where, inputs, backend) for backend in ("relative_vectors", "reference"))
    for what in ("output", "q", "k", "v"):
        assert_as_close(found[what], plain[what], exact[what], factor=3.0, what=what)


def test_full_blocks_agree(monkeypatch):
    monkeypatch.undo()
    where, scheme = Geometry.causal(700), made("deberta")
    inputs = random_qkv(where, batch=1, dtype=torch.float64)
    found, exact = (results(scheme, where, inputs, backend) for backend in ("relative_vectors", "reference"))
    for what, true in exact.items():
        assert_as_close(found[what], true, true, what=what)


def test_values_may_have_another_width_and_tables_may_be_frozen():
    where, scheme = Geometry.causal(17), made("transformer_xl").requires_grad_(False)
    q, k, _ = random_qkv(where, dtype=torch.float64)
    v = torch.randn(2, 2, 17, 3, dtype=torch.float64).requires_grad_()
    slopes = [
        torch.autograd.grad(attend(q, k, v, scheme.at(where), backend=name).square().sum(), (q, k, v))
        for name in ("relative_vectors", "reference")
    ]
    for one, other in zip(*slopes, strict=True):
        assert_as_close(one, other, other)


def test_a_view_with_a_wrong_stride_is_detected(monkeypatch):
    monkeypatch.setattr(
        skew, "_skewed", lambda x, columns: x.as_strided((len(x), columns), (x.shape[1], 1)), raising=True
    )
    where, scheme = Geometry.causal(17), made("music")
    inputs = random_qkv(where, dtype=torch.float64)
    found, exact = (results(scheme, where, inputs, backend) for backend in ("relative_vectors", "reference"))
    with pytest.raises(AssertionError, match="output"):
        assert_as_close(found["output"], exact["output"], exact["output"], what="output")


def test_a_reach_that_is_too_short_is_detected():
    where, scheme = Geometry.causal(17), made("shaw")
    inputs = random_qkv(where, dtype=torch.float64)
    exact = results(scheme, where, inputs, "reference")["output"]
    whole = scheme.relative_vectors
    scheme.relative_vectors = lambda where: whole(where)._replace(reach=2)
    with pytest.raises(AssertionError, match="output"):
        assert_as_close(results(scheme, where, inputs, "relative_vectors")["output"], exact, exact, what="output")


@pytest.mark.parametrize(
    ("scheme", "where", "options", "says"),
    [
        (T5(heads=4), Geometry.causal(17), {}, "the scheme does not depend on content"),
        (Cope(head_width=8), Geometry.causal(17), {}, "the scheme has no vector for each offset"),
        (
            Sum(Shaw(head_width=8), Cope(head_width=8)),
            Geometry.causal(17),
            {},
            "the scheme has no vector for each offset",
        ),
        (
            Shaw(head_width=8),
            Geometry.from_positions(torch.arange(17)[None, :, None]),
            {},
            "depends on more than the offset in memory order",
        ),
        (Shaw(head_width=8), Geometry.causal(17), {"dropout": 0.1}, "dropout is not supported"),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, options, says):
    q, k, v = random_qkv(where, dtype=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), backend="relative_vectors", **options)


def test_few_pairs_are_rejected(monkeypatch):
    monkeypatch.undo()
    where = Geometry.causal(17)
    inputs = random_qkv(where, dtype=torch.float32)
    assert (
        "fewer than 131072 query-key pairs"
        in explain(*inputs, Shaw(head_width=8).at(where)).unsupported["relative_vectors"]
    )


@pytest.mark.parametrize(
    ("name", "where", "chosen"),
    [
        ("deberta", Geometry.full(720), False),
        ("deberta", Geometry.full(725), True),
        ("deberta", Geometry.causal(400), True),
        ("shaw", Geometry.full(400), True),
        ("transformer_xl", Geometry.full(400), True),
    ],
    ids=str,
)
def test_short_texts_with_vectors_of_keys_and_no_causal_mask_are_left_to_pytorch(name, where, chosen, monkeypatch):
    monkeypatch.undo()
    told = explain(*random_qkv(where, batch=1, dtype=torch.float32), made(name).at(where))
    few = "other ways are faster with fewer than 524288 query-key pairs in a head"
    assert (told.unsupported.get("relative_vectors") == few) != chosen


def test_vectors_of_another_width_raise_an_error():
    where = Geometry.causal(17)
    q, k, v = random_qkv(where, width=4, dtype=torch.float32)
    at = Music(head_width=8, heads=4, max_length=20).at(where)
    with pytest.raises(ValueError, match="relative position vectors must have as many heads as the queries"):
        attend_encoded(Encoded(q, k), v, at, backend="relative_vectors")
    with pytest.raises(ValueError, match="this Music was built for head_width 8; got 4 in q"):
        attend(q, k, v, at)
