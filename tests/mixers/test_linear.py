import subprocess
import sys

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.linear import LinearAttention
from ordinate.ops import chunks
from ordinate.schemes import NoPosition, Rope

PHI = {
    "elu": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": lambda x: x.clamp(min=0),
    "square": lambda x: x.clamp(min=0) ** 2,
}


def by_the_formula(mixer, x, at):
    """Reference weights (queries x keys): numerator with encoded features, denominator with unencoded ones."""
    q, k, v = (
        part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in (x @ mixer.project.weight.T).split(mixer.widths, -1)
    )
    q, k = PHI[mixer.feature](q), PHI[mixer.feature](k)
    marked_q, marked_k = at.encode(q, k).pair
    k, marked_k, v = (key.repeat_interleave(q.shape[1] // key.shape[1], 1) for key in (k, marked_k, v))
    seen = at.where.visible[:, None]
    weights, total = (marked_q @ marked_k.mT) * seen, ((q @ k.mT) * seen).sum(-1, keepdim=True)
    y = torch.where(total > 0, weights @ v / total.clamp(min=1e-300), 0)
    return y.transpose(1, 2).flatten(2) @ mixer.out.weight.T


def outputs_and_gradients(compute, mixer, x, at):
    y = compute(x, at)
    return y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *mixer.parameters()])


@pytest.mark.covering(1)
@pytest.mark.parametrize("feature", list(PHI))
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=4)], ids=["none", "rope"])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize(
    "where", [Geometry.causal(1), Geometry.causal(67), Geometry.full(1), Geometry.full(9)], ids=lambda x: str(x.shape)
)
def test_it_is_the_formula_of_pairs(where, kv_heads, scheme, feature):
    mixer = LinearAttention(width=8, heads=2, kv_heads=kv_heads, feature=feature).double()
    x = torch.randn(2, where.shape[0], 8, dtype=torch.float64, requires_grad=True)
    at = scheme.at(where)
    ours = outputs_and_gradients(lambda *given: mixer(*given)[0], mixer, x, at)
    plain = outputs_and_gradients(lambda *given: by_the_formula(mixer, *given), mixer, x, at)
    for out, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(out, expected, atol=1e-11, rtol=1e-11)


def test_what_it_remembers_does_not_grow():
    mixer = LinearAttention(width=8, heads=2)
    for tokens in (3, 70):
        _, state = mixer(torch.randn(1, tokens, 8), NoPosition().at(Geometry.causal(tokens)))
        assert state.values.shape == (1, 2, 4, 4)
        assert state.keys.shape == (1, 2, 4)


@pytest.mark.parametrize("cut", [0, 1, 64, 69, 70])
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=4)], ids=["none", "rope"])
def test_piece_by_piece_is_the_same_as_at_once(cut, scheme):
    mixer = LinearAttention(width=8, heads=2, kv_heads=1).double()
    x = torch.randn(2, 70, 8, dtype=torch.float64)
    whole, _ = mixer(x, scheme.at(Geometry.causal(70)))
    first, state = mixer(x[:, :cut], scheme.at(Geometry.causal(cut)))
    rest, _ = mixer(x[:, cut:], scheme.at(Geometry.causal(70 - cut, cached=cut)), state if cut else None)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, atol=1e-13, rtol=1e-13)


def test_a_query_whose_features_are_all_zero_reads_nothing():
    mixer = LinearAttention(width=4, heads=1, feature="relu").double()
    with torch.no_grad():
        mixer.project.weight.copy_(torch.eye(4, dtype=torch.float64).repeat(3, 1))
    x = -torch.ones(1, 3, 4, dtype=torch.float64)
    x.requires_grad_()
    y, _ = mixer(x, NoPosition().at(Geometry.causal(3)))
    assert torch.equal(y, torch.zeros(1, 3, 4))
    assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()


def test_sums_are_not_rounded_to_sixteen_bits():
    mixer, at = LinearAttention(width=8, heads=2), NoPosition().at(Geometry.causal(2000))
    x = torch.randn(1, 2000, 8)
    exact, _ = mixer(x, at)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, state = mixer(x, at)
    half, halved = mixer.bfloat16()(x.bfloat16(), at)
    assert state.values.dtype == halved.values.dtype == torch.float32
    assert mixed.dtype == half.dtype == torch.bfloat16
    for y in (mixed, half):
        assert (y - exact).norm() < 0.02 * exact.norm()


def test_a_mutant_that_forgets_between_chunks_is_caught(monkeypatch):
    whole = chunks.linear_attention

    def forgetful(q, k, v, sums, peaks=None):
        parts = [whole(*(x[:, :, rows] for x in (q, k, v)), sums) for rows in (slice(0, 64), slice(64, None))]
        return torch.cat([out for out, _ in parts], 2), parts[-1][1]

    monkeypatch.setattr("ordinate.mixers.linear.linear_attention", forgetful)
    with pytest.raises(AssertionError, match="Tensor-likes"):
        test_it_is_the_formula_of_pairs(Geometry.causal(67), 2, NoPosition(), "elu")


def test_an_unknown_feature_is_refused():
    with pytest.raises(
        ValueError, match=r"option feature of LinearAttention must be .*'elu', 'relu', 'square'.*; got 'elo'"
    ):
        LinearAttention(width=8, heads=2, feature="elo")


# in a process of its own, without the checks of types, which the compiler cannot trace
COMPILED = """
import torch
from ordinate import Geometry
from ordinate.mixers import LinearAttention
from ordinate.schemes import NoPosition

mixer, where = LinearAttention(width=8, heads=2), Geometry.causal(5)
x = torch.randn(2, 5, 8, requires_grad=True)

def run(x):
    return mixer(x, NoPosition().at(where))[0]

exact, made = (
    torch.autograd.grad(f(x).square().sum(), x)[0] for f in (run, torch.compile(run, backend="aot_eager"))
)
torch.testing.assert_close(made, exact)
"""


@pytest.mark.extended
def test_it_is_compiled_although_elu_has_gradients_of_another_layout_than_expected():
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
