from dataclasses import replace

import pytest
import torch

from ordinate import T5, Alibi, Formula, Geometry, Shaw, Unmarked, attend, explain
from ordinate.native import build
from ordinate.routes import blocks
from ordinate.testing import assert_as_close

GEOMETRIES = {
    "causal": Geometry.causal(13),
    "cached": Geometry.causal(5, cached=8),
    "window": Geometry.full(13, window=4),
    "packed": Geometry.packed([4, 1, 8]),
    "irregular": Geometry.given(torch.linspace(0, 30, 13)[None, :, None]),
}


def share(scores, visible):
    """Weights that are no softmax: each score's square, over their sum."""
    kept = scores.square().masked_fill(~visible[:, None], 0.0)
    return kept / (1 + kept.sum(-1, keepdim=True))


# tables are drawn alike in every process
with torch.random.fork_rng():
    torch.manual_seed(0)
    SCHEMES = [Unmarked(), Alibi(heads=4), T5(heads=4), Shaw(head_width=8, past=3, future=3)]
SINKS = torch.tensor([0.5, -1.0, 2.0, 30.0])
FORMULAS = {
    "cap": Formula(cap=1.5),
    "sinks": Formula(sinks=SINKS),
    "cap and sinks": Formula(cap=1.5, sinks=SINKS),
    "weights": Formula(weights=share),
    "both": Formula(cap=2.0, weights=share),
}


DRAWS = 4


def results(scheme, where, formula, route, type):
    """The output and all slopes, stacked for a few draws: of a single one the plain formula may have lucky sums."""
    draws = [_results(scheme, where, formula, route, type, seed) for seed in range(DRAWS)]
    return [None if of[0] is None else torch.stack(of) for of in zip(*draws, strict=True)]


def _results(scheme, where, formula, route, type, seed):
    generator = torch.Generator().manual_seed(seed)
    queries, keys = where.shape
    sizes = ((2, 4, queries, 8), (2, 2, keys, 8), (2, 2, keys, 8))
    leaves = [
        torch.randn(*size, generator=generator, dtype=torch.float64).to(type).requires_grad_() for size in sizes
    ]
    learned = list(scheme.parameters())
    if formula.sinks is not None:
        formula = replace(formula, sinks=formula.sinks.to(type).requires_grad_())
        learned = [formula.sinks, *learned]
    out = attend(*leaves, scheme.at(where), formula=formula, route=route)
    slopes = torch.autograd.grad(out.cos().sum(), [*leaves, *learned], allow_unused=True)
    return [out, *slopes]


@pytest.mark.parametrize("type", [torch.float64, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("where", GEOMETRIES)
def test_it_agrees_with_the_reference(where, formula, scheme, type, monkeypatch):
    if where == "irregular" and not isinstance(scheme, Unmarked | Alibi):
        pytest.skip("it counts whole distances")
    where, formula = GEOMETRIES[where], FORMULAS[formula]
    exact = results(scheme.double(), where, formula, "reference", torch.float64)
    plain = results(scheme.to(type), where, formula, "reference", type)
    # blocks of one row and of a few
    for size in (1, 250):
        monkeypatch.setattr(blocks, "SCORES", size)
        for came, near, true in zip(results(scheme, where, formula, "blocks", type), plain, exact, strict=True):
            if true is not None and true.ndim == 2 and type == torch.float32:
                # a sink's slope is a sum over all rows, added row by row here
                torch.testing.assert_close(came.double(), true, rtol=1e-5, atol=1e-5)
            elif true is not None:
                assert_as_close(came, near, true, factor=3)


def test_what_it_does_not_take_is_refused(monkeypatch):
    q, at = torch.randn(1, 4, 9, 8), Unmarked().at(Geometry.causal(9))
    with pytest.raises(ValueError, match="the formula is the usual one"):
        attend(q, q, q, at, route="blocks")
    with pytest.raises(ValueError, match="no more than"):
        attend(q, q, q, at, route="blocks", formula=Formula(cap=1.0))
    monkeypatch.setattr(blocks, "SCORES", 2)
    with pytest.raises(ValueError, match="it drops nothing"):
        attend(q, q, q, at, route="blocks", formula=Formula(cap=1.0), dropout=0.1)
    monkeypatch.setenv(build.SWITCH, "off")
    assert explain(q, q, q, at, formula=Formula(cap=1.0)).route == "blocks"
