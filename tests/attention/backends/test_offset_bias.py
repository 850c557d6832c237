from unittest import mock

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import offset_bias
from ordinate.ops import decay_cutoff, matmul, offset_bias_fused, offset_bias_tiles
from ordinate.ops import offset_bias_attention as blocks
from ordinate.schemes import T5, Alibi, NoPosition, Rope
from ordinate.testing.backend import GEOMETRIES, assert_agrees, random_qkv

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # blocks smaller than the sequences, and no lower limit on sequences
    monkeypatch.setattr(blocks, "ROWS", 5)
    monkeypatch.setattr(blocks, "KEYS", 5)
    monkeypatch.setattr(offset_bias_tiles, "TILE", 4)
    monkeypatch.setattr(offset_bias_tiles, "DIAGONAL", 3)
    monkeypatch.setattr(offset_bias_fused, "ROWS", 5)
    monkeypatch.setattr(offset_bias_fused, "LONG_ROWS", 10)
    monkeypatch.setattr(offset_bias_fused, "LONG", 64)
    monkeypatch.setattr(offset_bias_fused, "MIN_KEYS", 0)
    monkeypatch.setattr(offset_bias, "MIN_PAIRS", 0)
    monkeypatch.setattr(offset_bias, "sdpa_is_slow", lambda: True)
    choose(monkeypatch, "rows")


ENGINES = ["rows", "tiles", "fused"]


def choose(monkeypatch, engine):
    """Compute whole rows, tiles in the backward pass of float32, or by PyTorch's kernel where it can."""
    monkeypatch.setattr(offset_bias_tiles, "blas_is_fast", lambda: engine == "tiles")
    monkeypatch.setattr(offset_bias_fused, "onednn_is_faster", lambda: engine != "fused")


@pytest.fixture
def tiled(monkeypatch):
    """The backward pass of float32 takes tiles, as on a processor where BLAS is fast."""
    choose(monkeypatch, "tiles")


@pytest.mark.covering(1)
@pytest.mark.parametrize("engine", ["onednn", "onednn with 512-bit units", *ENGINES])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type, engine, monkeypatch):
    if engine.startswith("onednn") and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: engine.startswith("onednn"))
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda: engine.startswith("onednn"))
    choose(monkeypatch, engine)
    monkeypatch.setattr(matmul, "has_512_bit_units", lambda: engine.endswith("units"))
    where = GEOMETRIES[geometry](17)
    assert_agrees("offset_bias", SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.covering(1)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("width", [1, 8, 24])
@pytest.mark.parametrize("tokens", [5, 63, 129])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, engine, monkeypatch):
    choose(monkeypatch, engine)
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5"), ("cross", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("offset_bias", SCHEMES[name](), where, *random_qkv(where, width=width, dtype=torch.float32))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("type", [torch.float64, torch.float32])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads, type, engine, monkeypatch):
    choose(monkeypatch, engine)
    where = Geometry.causal(9)
    assert_agrees("offset_bias", Alibi(heads=4), where, *random_qkv(where, kv_heads=kv_heads, dtype=type))
    assert_agrees("offset_bias", t5(), where, *random_qkv(where, kv_heads=kv_heads, dtype=type))


def test_values_may_have_another_width():
    where = Geometry.causal(9)
    q, k, _ = random_qkv(where, dtype=torch.float64)
    v = torch.randn(2, 2, 9, 3, dtype=torch.float64, requires_grad=True)
    assert_agrees("offset_bias", t5(), where, q, k, v)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("type", [torch.float64, torch.float32])
def test_queries_without_visible_keys_give_zero_and_no_gradient(type, engine, monkeypatch):
    choose(monkeypatch, engine)
    # twenty queries, five keys, and a window without keys for the last queries
    where = Geometry.full(5, window=3)
    where = Geometry(torch.arange(20)[None, :, None], where.k_pos, window=3, consecutive=True)
    q, k, v = random_qkv(where, dtype=type)
    out = attend(q, k, v, t5().to(type).at(where), backend="offset_bias")
    assert (out[:, :, 8:] == 0).all()
    (slope,) = torch.autograd.grad(out.square().sum(), q)
    assert (slope[:, :, 8:] == 0).all()
    assert (slope[:, :, :6] != 0).any(-1).all()
    assert_agrees("offset_bias", t5(), where, q, k, v)


def test_strided_inputs_give_the_same_result():
    where = Geometry.causal(9)
    x = torch.randn(2, 9, 4, 8).transpose(1, 2)
    expanded = torch.randn(1, 1, 9, 8).expand(2, 4, 9, 8)
    for q in (x, expanded):
        at = t5().at(where)
        same = attend(q.contiguous(), q.contiguous(), q.contiguous(), at, backend="offset_bias")
        assert attend(q, q, q, at, backend="offset_bias").equal(same)


@pytest.mark.parametrize("where", [Geometry.causal(300, cached=20), Geometry.full(320)], ids=str)
@pytest.mark.parametrize(("type", "engine"), [*((type, "rows") for type in TYPES[:3]), (torch.float32, "tiles")])
def test_keys_of_negligible_weight_are_skipped(type, engine, where, monkeypatch):
    choose(monkeypatch, engine)
    monkeypatch.setattr(blocks, "ROWS", 50)
    monkeypatch.setattr(decay_cutoff, "MIN_KEYS", 0)
    scheme = Alibi(heads=4)
    q, k, v = random_qkv(where, batch=1, dtype=type)
    with mock.patch.object(blocks, "_unnormalised_weights", side_effect=blocks._unnormalised_weights) as spy:
        attend(q, k, v, scheme.at(where), backend="offset_bias")
    assert spy.call_args_list[0].args[-1].keys.start >= 50
    # the last block comes first
    assert where.is_causal or spy.call_args_list[6].args[-1].keys.stop <= 270
    assert_agrees("offset_bias", scheme, where, q, k, v)
    if type == torch.bfloat16:
        return
    # a bound that is too tight is detected
    monkeypatch.setattr(decay_cutoff, "SKIPPED_SHARE", 1e4 / torch.finfo(type).eps)
    with pytest.raises(AssertionError, match=r"off by|non-finite"):
        assert_agrees("offset_bias", scheme, where, q, k, v)


@pytest.mark.parametrize("where", [Geometry.causal(300, cached=20), Geometry.full(320)], ids=str)
@pytest.mark.parametrize("type", [torch.float64, torch.float32])
def test_keys_of_negligible_weight_are_skipped_by_the_fused_kernel(type, where, monkeypatch):
    choose(monkeypatch, "fused")
    for module in (blocks, offset_bias_fused):
        monkeypatch.setattr(module, "ROWS", 50)
    monkeypatch.setattr(decay_cutoff, "MIN_KEYS", 0)
    scheme = Alibi(heads=4)
    q, k, v = random_qkv(where, batch=1, dtype=type)
    cut = list(offset_bias_fused.parts(q, k, table_of(scheme, where, type), where, 8**-0.5))
    assert len(cut) == 4
    assert cut[0].blocks[-1].keys.start >= 50
    assert_agrees("offset_bias", scheme, where, q, k, v)
    # a bound that is too tight is detected
    monkeypatch.setattr(decay_cutoff, "SKIPPED_SHARE", 1e4 / torch.finfo(type).eps)
    with pytest.raises(AssertionError, match=r"off by|non-finite"):
        assert_agrees("offset_bias", scheme, where, q, k, v)


def table_of(scheme, where, type):
    return blocks.masked_table(scheme.at(where).offset_table, where, 4, type)


def test_a_shifted_diagonal_of_the_gradient_is_detected(monkeypatch):
    # the gradient of the table is the part most prone to off-by-one errors
    whole = blocks._add_diagonals

    def shifted(sums, slope, block):
        whole(sums, slope.roll(1, 1), block)

    where = Geometry.causal(17)
    monkeypatch.setattr(blocks, "_add_diagonals", shifted)
    with pytest.raises(AssertionError, match="gradient of the scheme"):
        assert_agrees("offset_bias", t5(), where, *random_qkv(where, dtype=torch.float64))


def test_tiles_are_taken_by_float32_where_blas_is_fast_alone(monkeypatch):
    taken = []
    way_back = offset_bias_tiles.backward
    monkeypatch.setattr(
        offset_bias_tiles, "backward", lambda *given: taken.append(given[0].dtype) or way_back(*given)
    )
    where = Geometry.causal(9)
    for fast, expected in ((True, [torch.float32]), (False, [])):
        monkeypatch.setattr(offset_bias_tiles, "blas_is_fast", lambda fast=fast: fast)
        for type in TYPES:
            q, k, v = random_qkv(where, dtype=type)
            attend(q, k, v, t5().to(type).at(where), backend="offset_bias").sum().backward()
        assert taken == expected
        taken.clear()


def other_denominators(of, queries, gradient, out, sums):
    return of(queries, gradient, out, sums._replace(totals=2 * sums.totals))


def no_outputs(of, queries, gradient, out, sums):
    return of(queries, gradient, 0 * out, sums)


def shifted_diagonals(add, self, sums, tile):
    add(self, sums[1:], tile)


def first_tile_only(get, self, keys):
    return get(self, slice(0, keys.stop - keys.start))


MUTANTS = {
    other_denominators: (offset_bias_tiles._Rows, "of"),
    no_outputs: (offset_bias_tiles._Rows, "of"),
    shifted_diagonals: (offset_bias_tiles._WayBack, "_add_diagonals"),
    first_tile_only: (offset_bias_tiles._KeyTiles, "__getitem__"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_gradient_of_tiles_is_detected(mutant, tiled, monkeypatch):
    owner, name = MUTANTS[mutant]
    usual, where = getattr(owner, name), Geometry.causal(17)
    monkeypatch.setattr(owner, name, lambda *given: mutant(usual, *given))
    with pytest.raises(AssertionError, match="gradient of"):
        assert_agrees("offset_bias", t5(), where, *random_qkv(where, dtype=torch.float32))


def test_keys_with_all_the_weight_leave_no_gradient(tiled, monkeypatch):
    for name, size in (("TILE", 512), ("DIAGONAL", 64)):
        monkeypatch.setattr(offset_bias_tiles, name, size)
    monkeypatch.setattr(blocks, "ROWS", 256)
    where = Geometry.causal(700)
    q, k, v = random_qkv(where, width=64, dtype=torch.float32)
    # scores are so far apart that the exact gradient of the keys is 0
    out = attend(1e6 * q, k, v, t5().at(where), backend="offset_bias")
    (found,) = torch.autograd.grad(out, k, torch.randn_like(out))
    # summed in another order, as at the edges of products, g.o differs from g v^T in the last digit
    assert (found == 0).all(-1).float().mean() > 0.8


def unscaled_sums(forward, *given):
    out, sums = forward(*given)
    return out, sums + 0.1


def unreversed(backward, *given):
    to_q, *others = backward(*given)
    return to_q.flip(2), *others


def first_head_only(mask, part, table, where, block):
    return mask(part, table[:1].expand_as(table), where, block)


FUSED_MUTANTS = {
    unscaled_sums: (offset_bias_fused, "forward"),
    unreversed: (offset_bias_fused, "backward"),
    first_head_only: (offset_bias_fused.Part, "mask"),
}


@pytest.mark.parametrize("mutant", FUSED_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_result_around_the_fused_kernel_is_detected(mutant, monkeypatch):
    choose(monkeypatch, "fused")
    owner, name = FUSED_MUTANTS[mutant]
    usual, where = getattr(owner, name), Geometry.causal(17)
    monkeypatch.setattr(owner, name, lambda *given: mutant(usual, *given))
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees("offset_bias", Alibi(heads=4), where, *random_qkv(where, dtype=torch.float32))


def test_the_fused_kernel_is_taken_where_it_is_faster_and_has_the_gradients(monkeypatch):
    taken = []
    for name in ("forward", "backward"):
        usual = getattr(offset_bias_fused, name)
        monkeypatch.setattr(
            offset_bias_fused, name, lambda *given, name=name, usual=usual: taken.append(name) or usual(*given)
        )
    where = Geometry.causal(9)

    def step(scheme, type, scale=1.0, width=8):
        taken.clear()
        q, k, v = random_qkv(where, dtype=type)
        out = attend(scale * q, k, v[..., :width], scheme.to(type).at(where), backend="offset_bias")
        out.sum().backward()
        return list(taken)

    assert step(Alibi(heads=4), torch.float32) == []
    choose(monkeypatch, "fused")
    assert step(Alibi(heads=4), torch.float32) == ["forward", "backward"]
    assert step(Alibi(heads=4), torch.float32, width=4) == []
    # a log-sum-exp is rounded at its own size
    assert step(Alibi(heads=4), torch.float32, scale=1e4) == ["forward"]
    # the kernel has no gradient of the table
    assert step(t5(), torch.bfloat16) == ["forward"]
    monkeypatch.setattr(offset_bias_tiles, "blas_is_fast", lambda: True)
    assert step(t5(), torch.float32) == []
    # its backward pass is slower than products of float32 matrices, whatever has gradients
    assert step(Alibi(heads=4), torch.float32) == []
    for operands, expected in ((torch.float32, []), (torch.bfloat16, ["forward", "backward"])):
        monkeypatch.setattr(offset_bias_tiles, "gradient_type", lambda _, operands=operands: operands)
        assert step(Alibi(heads=4), torch.bfloat16) == expected
    taken.clear()
    with torch.no_grad():
        q, k, v = random_qkv(where, dtype=torch.float32)
        attend(q, k, v, t5().at(where), backend="offset_bias")
    assert taken == ["forward"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("type", [torch.float32, torch.float64, torch.bfloat16])
def test_inputs_and_gradients_whose_channels_are_not_contiguous(type, engine, monkeypatch):
    choose(monkeypatch, engine)
    where, scheme = Geometry.causal(17), Alibi(heads=4)
    given = [torch.randn(2, 4, 8, 17, dtype=type).mT for _ in range(4)]
    for i in range(4):
        read = [x if i == j else x.contiguous() for j, x in enumerate(given)]
        found, usual = (
            torch.autograd.grad(attend(*inputs[:3], scheme.at(where), backend="offset_bias"), inputs[:3], inputs[3])
            for inputs in (
                [x.detach().requires_grad_() for x in read],
                [x.contiguous().requires_grad_() for x in given],
            )
        )
        for one, other in zip(found, usual, strict=True):
            torch.testing.assert_close(one, other)


def test_a_wrong_backend_is_not_timed(monkeypatch, capsys):
    from benchmarks.attention import timed
    from benchmarks.attention.correctness import is_green

    assert timed(["t5@offset_bias", "t5@no such backend"]) == ["t5@offset_bias"]
    is_green.cache_clear()
    monkeypatch.setattr(blocks, "_add_diagonals", lambda sums, slope, block: None)
    assert timed(["t5@offset_bias"]) == []
    assert "not timed: t5 by offset_bias: gradient of the scheme" in capsys.readouterr().out
    is_green.cache_clear()


@pytest.mark.parametrize("type", [torch.float64, torch.float32])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_dropout_zeroes_weights_and_rescales_the_others(geometry, type, tiled):
    where = GEOMETRIES[geometry](17)
    scheme = t5().to(type)
    q, k, _ = random_qkv(where, dtype=type)
    # the values are one-hot per key, so the outputs are the weights
    v = torch.eye(where.shape[1], dtype=type).expand(2, 2, -1, -1).clone().requires_grad_()
    whole = attend(q, k, v, scheme.at(where), backend="reference")
    torch.manual_seed(3)
    out = attend(q, k, v, scheme.at(where), dropout=0.3, backend="offset_bias")
    factors = torch.where(whole > 1e-12, out.detach() / whole.detach(), 0.0)
    values = factors[whole > 1e-12]
    assert torch.allclose(
        values * (values - 1 / 0.7), torch.zeros_like(values), atol=1e-6 if type == torch.float64 else 1e-4
    )
    assert abs(float((values == 0).double().mean()) - 0.3) < 5 * (0.21 / len(values)) ** 0.5
    # the backward pass drops the same weights
    upstream, learned = torch.randn_like(out), [q, k, v, scheme.table]
    found = torch.autograd.grad(out, learned, upstream)
    weights = attend(q, k, v.detach(), scheme.at(where), backend="reference") * factors
    true = torch.autograd.grad(weights @ v.repeat_interleave(2, 1), learned, upstream)
    for one, two in zip(found, true, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("scheme", "where", "dropout", "says"),
    [
        (
            Alibi(heads=4),
            Geometry.from_positions(torch.tensor([[[0], [5], [2]]])),
            0.0,
            "the bias depends on more than the offset in memory order",
        ),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, dropout, says):
    q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), dropout=dropout, backend="offset_bias")


def test_nonfinite_numbers_are_rejected():
    where = Geometry.causal(3)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    k[0, 0, 0, 0] = float("nan")
    assert explain(q, k, v, t5().at(where)).unsupported["offset_bias"] == "q, k or v contains NaN or infinity"


def test_small_inputs_and_fast_machines_are_left_to_sdpa(monkeypatch):
    where = Geometry.causal(9)
    inputs = random_qkv(where, dtype=torch.float32)
    monkeypatch.setattr(offset_bias, "sdpa_is_slow", lambda: False)
    said = explain(*inputs, Rope(head_width=8).at(where)).unsupported["offset_bias"]
    assert said == "without a bias PyTorch's own attention is as fast on this processor"
    few = "other ways are faster with fewer than 196608 query-key pairs in a head"
    assert explain(*inputs, t5().at(where)).unsupported["offset_bias"] == few
    monkeypatch.setattr(offset_bias, "MIN_CAUSAL_PAIRS", 81)
    assert explain(*inputs, t5().at(where)).backend == "offset_bias"
    monkeypatch.setattr(offset_bias, "MIN_PAIRS", 82)
    assert (
        explain(*inputs, t5().at(where)).unsupported["offset_bias"]
        == "there are fewer than 82 query-key pairs in a head"
    )


def test_gradients_of_other_dtypes_are_multiplied_in_float32_at_least(monkeypatch):
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda: True)
    types = [matmul.gradient_type(type) for type in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
    assert types == [torch.float32, torch.bfloat16, torch.float32, torch.float64]
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda: False)
    assert matmul.gradient_type(torch.bfloat16) == torch.float32


def test_no_bias_tensor_of_queries_times_keys_is_held():
    where = Geometry.causal(1000)
    at = t5().at(where)
    q, k, v = (torch.zeros(1, 4, 1000, 8) for _ in range(3))
    assert explain(q, k, v, at, backend="offset_bias").workspace_bytes < 4 * 1000 * 1000
    assert at.offset_table.shape == (4, 1999)


def test_an_empty_batch_of_long_texts_is_left_to_others():
    q = torch.zeros(0, 4, 1100, 8, requires_grad=True)
    out = attend(q, q, q, Alibi(heads=4).at(Geometry.causal(1100)))
    out.sum().backward()
    assert out.shape == q.grad.shape == q.shape
