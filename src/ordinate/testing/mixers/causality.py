"""What a mixer lets through from the future."""

import torch

from ordinate.geometry import Geometry
from ordinate.testing.mixer import MixerCase

TOKENS = 9


def nothing_reaches_back_from_the_future(case: MixerCase) -> None:
    """The gradient of each output by every later input is exactly 0; by some input up to its own it is not."""
    case.need(case.kind.causal, "it has no causal form")
    case.need(case.mixer().exact_causal, "it says that its causal form lets something through")
    felt = _felt(case, Geometry.causal(TOKENS))
    for query in range(TOKENS):
        assert not felt[query, query + 1 :].any(), f"token {query} feels a later one"
        assert felt[query].any(), f"token {query} feels nothing"


def a_changed_future_leaves_the_past_as_it_was(case: MixerCase) -> None:
    """Even where the future is very large."""
    case.need(case.kind.causal, "it has no causal form")
    case.need(case.mixer().exact_causal, "it says that its causal form lets something through")
    x, where = case.tokens(1, TOKENS), Geometry.causal(TOKENS)
    out = case.mixed(x, where)
    changed = x.clone()
    changed[:, 5:] *= -1e3
    again = case.mixed(changed, where)
    assert torch.allclose(out[:, :5], again[:, :5], rtol=0, atol=1e-12), "tokens before a changed future changed"


def the_form_from_both_sides_feels_the_future(case: MixerCase) -> None:
    """The first token feels the last ones."""
    case.need(case.kind.bidirectional, "it reads from left to right only")
    felt = _felt(case, Geometry.full(TOKENS))
    assert felt[0, 1:].any(), "the first token feels none of those after it"


def a_form_that_it_lacks_is_refused(case: MixerCase) -> None:
    """By a ValueError, before anything is computed."""
    case.need(not (case.kind.causal and case.kind.bidirectional), "it has both forms")
    where = Geometry.full(4) if case.kind.causal else Geometry.causal(4)
    try:
        case.mixed(case.tokens(1, 4), where)
    except ValueError:
        return
    raise AssertionError(f"it mixes at {'full' if case.kind.causal else 'causal'} without a word")


def _felt(case: MixerCase, where: Geometry) -> torch.Tensor:
    """Which token (rows) feels which (columns)."""
    x = case.tokens(1, TOKENS).requires_grad_()
    out = case.mixed(x, where)
    rows = []
    for query in range(TOKENS):
        (gradient,) = torch.autograd.grad(out[:, query].square().sum(), x, retain_graph=True)
        rows.append((gradient[0] != 0).any(-1))
    return torch.stack(rows)
