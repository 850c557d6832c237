import pytest
import torch
from torch import nn

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import row_blocks
from ordinate.schemes import T5, Alibi, Cope, NoPosition, Rope, Scheme
from ordinate.schemes.shaw import Shaw
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.testing.backend import GEOMETRIES, assert_agrees, random_qkv

TYPES = [torch.float64, torch.float32, torch.bfloat16]


class Everywhere(Shaw):
    """A scheme with every hook inside attention, and parameters for each."""

    hooks = ("score", "bias", "content_bias", "value_bias")

    def __init__(self):
        super().__init__(head_width=8)
        for table in self.parameters():
            nn.init.normal_(table)
        self.steep = nn.Parameter(torch.tensor(0.3))
        self.inner = Rope(head_width=8, spectrum=Dynamic(trained_length=4, factor=2.0))

    def score(self, q, k, where):
        return self.inner.score(q, k, where)

    def bias(self, where):
        return -self.steep * where.offset[..., 0].abs()[:, None]


def t5() -> T5:
    scheme = T5(heads=4)
    nn.init.normal_(scheme.table)
    return scheme


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # three rows per block of seventeen keys, batch size two, four heads
    monkeypatch.setattr(row_blocks, "MAX_BLOCK_SCORES", 2 * 4 * 17 * 3)
    monkeypatch.setattr(row_blocks, "MIN_PAIRS", 1)
    monkeypatch.setattr(row_blocks, "MIN_CAUSAL_PAIRS", 1)
    monkeypatch.setattr(row_blocks, "MIN_OTHER_PAIRS", 1)


@pytest.fixture(params=["head by head", "fused"])
def engine(request, monkeypatch):
    """The forward pass takes heads one by one, or PyTorch's fused kernel as on a processor where BLAS is fast."""
    taken = []
    monkeypatch.setattr(row_blocks, "onednn_is_faster", lambda: request.param != "fused")
    usual = row_blocks.sdpa
    monkeypatch.setattr(
        row_blocks, "sdpa", lambda *given, **options: taken.append("fused") or usual(*given, **options)
    )
    yield request.param
    assert bool(taken) == (request.param == "fused")


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", sorted(set(GEOMETRIES) - {"newest"}))
@pytest.mark.parametrize(
    "make", [lambda: Alibi(heads=4), t5, lambda: Cope(head_width=8)], ids=["alibi", "t5", "cope"]
)
def test_it_agrees_with_the_reference_forward_and_backward(make, geometry, type, engine):
    where = GEOMETRIES[geometry](17)
    assert_agrees("row_blocks", make(), where, *random_qkv(where, dtype=type))


class Hiding(Scheme):
    """A bias that hides all keys from the fifth query, and the first key of each text from all."""

    hooks = ("bias",)
    shift_invariant = False

    def __init__(self, seventh=0.0):
        super().__init__()
        self.seventh = seventh

    def bias(self, where):
        bias = torch.zeros(1, 1, *where.shape)
        hidden = (where.q_pos == 4) | (where.k_pos == 0).mT
        bias = bias.masked_fill(hidden[:, None], float("-inf"))
        return bias.masked_fill((where.q_pos == 6)[:, None], self.seventh)


@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16])
def test_a_bias_of_minus_infinity_hides_keys(type, engine):
    where = Geometry.causal(17)
    inputs = random_qkv(where, dtype=type)
    made, exact = (_results(Hiding(), where, inputs, backend) for backend in ("row_blocks", "reference"))
    assert not made["output"][:, :, 4].any()
    for name, one in exact.items():
        torch.testing.assert_close(
            made[name],
            one,
            rtol=2e-2 if type == torch.bfloat16 else 1e-5,
            atol=2e-2 if type == torch.bfloat16 else 1e-6,
        )


def test_a_bias_of_nan_is_seen(engine):
    where = Geometry.causal(17)
    out = attend(*random_qkv(where, dtype=torch.float32), Hiding(float("nan")).at(where), backend="row_blocks")
    assert out[:, :, 6].isnan().all()
    assert out[:, :, 7:].isfinite().all()


def test_a_wrong_result_of_the_fused_kernel_is_detected(monkeypatch):
    monkeypatch.setattr(row_blocks, "onednn_is_faster", lambda: False)
    usual = row_blocks.sdpa
    monkeypatch.setattr(row_blocks, "sdpa", lambda q, k, v, mask, **options: usual(q, k, v.flip(2), mask, **options))
    where = Geometry.causal(17)
    with pytest.raises(AssertionError, match="output: off by"):
        assert_agrees("row_blocks", t5(), where, *random_qkv(where, dtype=torch.float32))


@pytest.mark.parametrize("geometry", sorted(set(GEOMETRIES) - {"newest"}))
def test_every_hook_agrees_in_outputs_and_gradients(geometry):
    where, scheme = GEOMETRIES[geometry](17), Everywhere().double()
    inputs = random_qkv(where, dtype=torch.float64)
    made, exact = (_results(scheme, where, inputs, backend) for backend in ("row_blocks", "reference"))
    for name, one in exact.items():
        assert torch.allclose(made[name], one, rtol=0, atol=1e-11), name
    assert all(slope.abs().max() > 0 for slope in exact.values())


def _results(scheme: Scheme, where, inputs, backend):
    out = attend(*inputs, scheme.at(where), backend=backend)
    names = ["q", "k", "v", *(name for name, _ in scheme.named_parameters())]
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape).cos()
    slopes = torch.autograd.grad((out * weights).sum(), [*inputs, *scheme.parameters()])
    return {"output": out.detach(), **dict(zip(names, slopes, strict=True))}


def test_arbitrary_positions_are_supported():
    pos = torch.rand(2, 17, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 20
    where = Geometry.from_positions(pos)
    assert_agrees("row_blocks", Alibi(heads=4).double(), where, *random_qkv(where, dtype=torch.float64))


def test_a_frozen_scheme_gets_no_gradient_and_q_k_v_keep_theirs():
    where, scheme = Geometry.causal(17), t5().double().requires_grad_(False)
    q, k, v = random_qkv(where, dtype=torch.float64)
    out = attend(q, k, v, scheme.at(where), backend="row_blocks")
    out.square().sum().backward()
    assert scheme.table.grad is None
    assert q.grad.abs().max() > 0


def test_the_backward_pass_uses_the_parameters_of_a_functional_call():
    where, scheme = Geometry.causal(17), t5().double()
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.scheme = scheme

        def forward(self, backend):
            return attend(q, k, v, self.scheme.at(where), backend=backend)

    other = torch.randn_like(scheme.table).requires_grad_()
    slopes = []
    for backend in ("row_blocks", "reference"):
        out = torch.func.functional_call(Attention(), {"scheme.table": other}, (backend,))
        slopes.append(torch.autograd.grad(out.square().sum(), other)[0])
    assert torch.allclose(*slopes, rtol=0, atol=1e-12)


def test_unsupported_calls_are_rejected_with_a_reason(monkeypatch):
    where = Geometry.causal(17)
    q, k, v = random_qkv(where, dtype=torch.float32)
    with pytest.raises(ValueError, match="the scheme adds nothing to the scores"):
        attend(q, k, v, NoPosition().at(where), backend="row_blocks")
    with pytest.raises(ValueError, match="dropout is not supported"):
        attend(q, k, v, t5().at(where), backend="row_blocks", dropout=0.1)
    assert explain(q, k, v, Everywhere().at(where)).backend == "row_blocks"
    monkeypatch.setattr(row_blocks, "MIN_PAIRS", 2**20)
    with pytest.raises(ValueError, match="there are fewer than 1048576 query-key pairs"):
        attend(q, k, v, t5().at(where), backend="row_blocks")


def test_many_short_texts_are_left_to_the_plain_formula_until_memory_counts(monkeypatch):
    where = Geometry.causal(17)
    q, k, v = random_qkv(where, dtype=torch.float32)
    monkeypatch.setattr(row_blocks, "MIN_CAUSAL_PAIRS", 17 * 17 + 1)
    assert "query-key pairs in a head" in explain(q, k, v, Everywhere().at(where)).unsupported["row_blocks"]
    monkeypatch.setattr(row_blocks, "MANY_PAIRS", q.shape[0] * q.shape[1] * 17 * 17)
    assert explain(q, k, v, Everywhere().at(where)).backend == "row_blocks"
