"""Causality: outputs do not depend on later tokens."""

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.assert_close import assert_max_close
from ordinate.testing.mixer import MixerCase

TOKENS = 9


def outputs_do_not_depend_on_later_tokens(case: MixerCase) -> None:
    """The gradient of each output by all later inputs is exactly 0; by some input up to its own it is not."""
    case.skip_unless(case.kind.causal, "it has no causal form")
    case.skip_unless(case.mixer().strictly_causal, "it declares that its causal form leaks")
    depends = _dependencies(case, Geometry.causal(TOKENS))
    for query in range(TOKENS):
        assert not depends[query, query + 1 :].any(), f"token {query} depends on a later one"
        assert depends[query].any(), f"token {query} depends on no input"


def a_changed_future_leaves_the_past_as_it_was(case: MixerCase) -> None:
    """Outputs do not change when later inputs change, even to very large values."""
    case.skip_unless(case.kind.causal, "it has no causal form")
    case.skip_unless(case.mixer().strictly_causal, "it declares that its causal form leaks")
    x, where = case.tokens(1, TOKENS), Geometry.causal(TOKENS)
    out = case.output(x, where)
    changed = x.clone()
    changed[:, 5:] *= -1e3
    again = case.output(changed, where)
    assert torch.allclose(out[:, :5], again[:, :5], rtol=0, atol=1e-12), "outputs before a changed input changed"


def a_non_finite_future_leaves_the_past_as_it_was(case: MixerCase) -> None:
    """NaN or infinity in a later token changes neither an earlier output nor its gradient by earlier inputs."""
    case.skip_unless(case.kind.causal, "it has no causal form")
    case.skip_unless(case.mixer().strictly_causal, "it declares that its causal form leaks")
    case.skip_unless(not case.not_looked_for(), "PyTorch's attention on a GPU lets NaN of hidden tokens through")
    x, where = case.tokens(1, TOKENS), Geometry.causal(TOKENS)
    out, slope = _past(case, x, where)
    for value in (float("nan"), float("inf"), -float("inf")):
        changed = x.clone()
        changed[:, 5] = value
        again, tilt = _past(case, changed, where)
        assert_max_close(again, out, 1e-9, f"outputs before a token of {value}")
        assert_max_close(tilt, slope, 1e-9, f"gradients before a token of {value}")


def _past(case: MixerCase, x: torch.Tensor, where: Geometry) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of the first five tokens, and their gradient by the inputs of these."""
    x = x.clone().requires_grad_()
    out = case.output(x, where)[:, :5]
    return out.detach(), torch.autograd.grad(out.square().sum(), x)[0][:, :5]


def the_bidirectional_form_depends_on_later_tokens(case: MixerCase) -> None:
    """In the bidirectional form the first output depends on later inputs."""
    case.skip_unless(case.kind.bidirectional, "it has no bidirectional form")
    depends = _dependencies(case, Geometry.full(TOKENS))
    assert depends[0, 1:].any(), "the first token depends on no later one"


def unsupported_forms_are_rejected(case: MixerCase) -> None:
    """A geometry of a form that the mixer lacks raises a ValueError."""
    case.skip_unless(not (case.kind.causal and case.kind.bidirectional), "it has both forms")
    where = Geometry.full(4) if case.kind.causal else Geometry.causal(4)
    try:
        case.output(case.tokens(1, 4), where)
    except ValueError:
        return
    raise AssertionError(f"it mixes at {'full' if case.kind.causal else 'causal'} without an error")


def _dependencies(case: MixerCase, where: Geometry) -> torch.Tensor:
    """Which output (rows) depends on which input (columns), by gradients."""
    x = case.tokens(1, TOKENS).requires_grad_()
    out = case.output(x, where)
    rows = []
    for query in range(TOKENS):
        (gradient,) = torch.autograd.grad(out[:, query].square().sum(), x, retain_graph=True)
        rows.append((gradient[0] != 0).any(-1))
    return torch.stack(rows)
