from dataclasses import replace

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions
from ordinate.attention.backends import custom_formula
from ordinate.ops.native import build
from ordinate.schemes import T5, Alibi, NoPosition, Shaw
from ordinate.testing import assert_as_close

GEOMETRIES = {
    "causal": Geometry.causal(13),
    "cached": Geometry.causal(5, cached=8),
    "window": Geometry.full(13, window=4),
    "packed": Geometry.packed([4, 1, 8]),
    "irregular": Geometry.from_positions(torch.linspace(0, 30, 13)[None, :, None]),
}


def share(scores, visible):
    """Normalise without softmax: squared scores over their sum."""
    kept = scores.square().masked_fill(~visible[:, None], 0.0)
    return kept / (1 + kept.sum(-1, keepdim=True))


# parameters are drawn with a fixed seed, the same in every process
with torch.random.fork_rng():
    torch.manual_seed(0)
    SCHEMES = [NoPosition(), Alibi(heads=4), T5(heads=4), Shaw(head_width=8, past=3, future=3)]
SINKS = torch.tensor([0.5, -1.0, 2.0, 30.0])
FORMULAS = {
    "cap": ScoreOptions(softcap=1.5),
    "sinks": ScoreOptions(sinks=SINKS),
    "cap and sinks": ScoreOptions(softcap=1.5, sinks=SINKS),
    "weights": ScoreOptions(normaliser=share),
    "both": ScoreOptions(softcap=2.0, normaliser=share),
}


DRAWS = 4


def results(scheme, where, formula, backend, type):
    """Outputs and gradients, stacked over a few draws: in a single one, the errors of the reference may cancel."""
    draws = [_results(scheme, where, formula, backend, type, seed) for seed in range(DRAWS)]
    return [None if of[0] is None else torch.stack(of) for of in zip(*draws, strict=True)]


def _results(scheme, where, formula, backend, type, seed):
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
    out = attend(*leaves, scheme.at(where), score_options=formula, backend=backend)
    slopes = torch.autograd.grad(out.cos().sum(), [*leaves, *learned], allow_unused=True)
    return [out, *slopes]


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.float64, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("where", GEOMETRIES)
# the others need integer positions
@pytest.mark.where(lambda where, scheme: where != "irregular" or isinstance(scheme, NoPosition | Alibi))
def test_it_agrees_with_the_reference(where, formula, scheme, type, monkeypatch):
    where, formula = GEOMETRIES[where], FORMULAS[formula]
    exact = results(scheme.double(), where, formula, "reference", torch.float64)
    plain = results(scheme.to(type), where, formula, "reference", type)
    # blocks of one row and of a few
    for size in (1, 250):
        monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", size)
        for came, near, true in zip(
            results(scheme, where, formula, "custom_formula", type), plain, exact, strict=True
        ):
            if true is not None and true.ndim == 2 and type == torch.float32:
                # the gradient of a sink is a sum over all rows, accumulated row by row here
                torch.testing.assert_close(came.double(), true, rtol=1e-5, atol=1e-5)
            elif true is not None:
                assert_as_close(came, near, true, factor=3)


def test_unsupported_calls_are_rejected_with_a_reason(monkeypatch):
    q, at = torch.randn(1, 4, 9, 8), NoPosition().at(Geometry.causal(9))
    with pytest.raises(ValueError, match="the formula is the standard one"):
        attend(q, q, q, at, backend="custom_formula")
    with pytest.raises(ValueError, match="no more than"):
        attend(q, q, q, at, backend="custom_formula", score_options=ScoreOptions(softcap=1.0))
    monkeypatch.setattr(custom_formula, "MAX_BLOCK_SCORES", 2)
    with pytest.raises(ValueError, match="dropout is not supported"):
        attend(q, q, q, at, backend="custom_formula", score_options=ScoreOptions(softcap=1.0), dropout=0.1)
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    assert explain(q, q, q, at, score_options=ScoreOptions(softcap=1.0)).backend == "custom_formula"
