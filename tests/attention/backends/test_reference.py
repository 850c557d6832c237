import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import T5, Alibi, NoPosition
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.tolerance import assert_as_close


def t5() -> T5:
    """T5 with a bias table large enough that a missing bias is detected."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def looped(q, k, v, scheme, where):
    """Attention by the formula, one query at a time: a weighted sum over its visible keys."""
    bias = scheme.bias(where)
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for b in range(q.shape[0]):
        visible = where.visible[b % where.visible.shape[0]]
        for h in range(q.shape[1]):
            g = h // (q.shape[1] // k.shape[1])
            for i in range(q.shape[2]):
                js = [j for j in range(k.shape[2]) if visible[i, j]]
                scores = [(q[b, h, i] * k[b, g, j]).sum() / math.sqrt(q.shape[3]) for j in js]
                if bias is not None:
                    scores = [s + bias[b % bias.shape[0], h, i, j] for s, j in zip(scores, js, strict=True)]
                total = sum(s.exp() for s in scores)
                for s, j in zip(scores, js, strict=True):
                    out[b, h, i] += s.exp() / total * v[b, g, j]
    return out


def plain(q, k, v, scheme, where):
    """The formula in the dtype of the inputs, without any precaution."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.mT / math.sqrt(q.shape[3])
    bias = scheme.bias(where)
    scores = scores if bias is None else scores + bias.to(q.dtype)
    weights = scores.masked_fill(~where.visible[:, None], float("-inf")).softmax(-1)
    return weights.nan_to_num() @ v


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
@torch.no_grad()
def test_the_reference_is_the_formula_one_query_at_a_time(name, geometry):
    scheme, where = SCHEMES[name]().double(), GEOMETRIES[geometry](7)
    q, k, v = random_qkv(where, dtype=torch.float64)
    expected = looped(q, k, v, scheme, where)
    assert_as_close(attend(q, k, v, scheme.at(where), backend="reference"), expected, expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("geometry", ["causal", "left"])
@pytest.mark.parametrize("tokens", [1, 63])
def test_the_reference_is_no_less_accurate_than_the_formula_in_each_dtype(name, type, geometry, tokens):
    scheme, where = SCHEMES[name](), GEOMETRIES[geometry](tokens)
    q, k, v = random_qkv(where, dtype=type)
    with torch.no_grad():
        exact = plain(q.double(), k.double(), v.double(), scheme.double(), where)
        usual = plain(q, k, v, scheme.float(), where)
        assert_as_close(attend(q, k, v, scheme.at(where), backend="reference"), usual, exact)


def test_large_scores_do_not_overflow_in_half_precision():
    where = Geometry.causal(5)
    q = torch.full((1, 1, 5, 64), 200.0, dtype=torch.float16)
    v = torch.randn(1, 1, 5, 64, dtype=torch.float16)
    expected = plain(q.double(), q.double(), v.double(), NoPosition(), where)
    out = attend(q, q, v, NoPosition().at(where), backend="reference")
    assert_as_close(out, expected.half(), expected)


@pytest.mark.covering(0)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_its_gradients_agree_with_finite_differences(name, geometry):
    scheme, where = SCHEMES[name]().double(), GEOMETRIES[geometry](3)
    q, k, v = random_qkv(where, heads=2 if name == "none" else 4, kv_heads=1, width=2, dtype=torch.float64)
    learned = list(scheme.parameters())

    def run(q, k, v, *_):
        return attend(q, k, v, scheme.at(where), backend="reference")

    assert torch.autograd.gradcheck(run, (q, k, v, *learned))


def test_values_may_have_another_width():
    where = Geometry.causal(5)
    q, k, _ = random_qkv(where, dtype=torch.float64)
    v = torch.randn(2, 2, 5, 3, dtype=torch.float64)
    out = attend(q, k, v, NoPosition().at(where))
    assert out.shape == (2, 4, 5, 3)
    expected = looped(q, k, v, NoPosition(), where)
    assert_as_close(out, expected, expected)


def test_a_carry_is_added_to_the_output():
    class Shift(NoPosition):
        def value_bias(self, weights, where):
            return weights.sum(-1, keepdim=True).expand(-1, -1, -1, 8) * 3.0

    where = Geometry.full(4)
    q, k, v = random_qkv(where, dtype=torch.float64)
    expected = looped(q, k, v, NoPosition(), where) + 3.0
    assert_as_close(attend(q, k, v, Shift().at(where)), expected, expected)


def test_a_content_dependent_bias_is_added_to_the_scores():
    class Twice(NoPosition):
        def content_bias(self, q, k, where):
            return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[3])

    where = Geometry.causal(6)
    q, k, v = random_qkv(where, dtype=torch.float64)
    expected = looped(2 * q, k, v, NoPosition(), where)
    for backend in ("reference", "sdpa"):
        assert_as_close(attend(q, k, v, Twice().at(where), backend=backend), expected, expected, what=backend)
