"""Causality: outputs do not depend on later tokens."""

from typing import Any

import torch

from ordinate.core.geometry import Geometry
from ordinate.mixers._mixer import Mixer
from ordinate.testing.assert_close import assert_max_close
from ordinate.testing.check import makes_tensors_on_a_gpu
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
    """NaN or infinity in a later token changes no earlier output and none of its gradients."""
    _skip_unless_confined(case)
    case.skip_unless(not case.not_looked_for(), "PyTorch's attention on a GPU lets NaN of hidden tokens through")
    _check_past(case, (float("nan"), float("inf"), -float("inf")))


def a_large_future_leaves_gradients_of_the_past_as_they_were(case: MixerCase) -> None:
    """A later token whose own gradients overflow changes no gradient of earlier outputs by inputs and parameters."""
    _skip_unless_confined(case)
    case.skip_unless(not makes_tensors_on_a_gpu(), "on a GPU large numbers are not looked for")
    _check_past(case, (1e30, 1e100, 1e300))


def _skip_unless_confined(case: MixerCase) -> None:
    case.skip_unless(case.kind.causal, "it has no causal form")
    case.skip_unless(case.mixer().strictly_causal, "it declares that its causal form leaks")


def _check_past(case: MixerCase, values: tuple[float, ...]) -> None:
    """Check outputs before a token of each of these values, and their gradients."""
    x, where, mixer = case.tokens(1, TOKENS), Geometry.causal(TOKENS), case.mixer()
    out, *slopes = _past(case, mixer, x, where)
    for value in values:
        changed = x.clone()
        changed[:, 5] = value
        again, *tilts = _past(case, mixer, changed, where)
        assert_max_close(again, out, 1e-9, f"outputs before a token of {value}")
        for what, tilt, slope in zip(("inputs", "parameters"), tilts, slopes, strict=True):
            assert_max_close(tilt, slope, 1e-9, f"gradients by {what} before a token of {value}")


def _past(case: MixerCase, mixer: Mixer[Any], x: torch.Tensor, where: Geometry) -> list[torch.Tensor]:
    """Outputs of the first five tokens, and their gradients by all inputs and by all parameters."""
    x = x.clone().requires_grad_()
    out = case.output(x, where, mixer)[:, :5]
    needed = [x, *(one for one in mixer.parameters() if one.requires_grad)]
    found = torch.autograd.grad(out.square().sum(), needed, allow_unused=True)
    slope, *others = (torch.zeros_like(x) if y is None else y for x, y in zip(needed, found, strict=True))
    return [out.detach(), slope, torch.cat([x.new_zeros(1), *(one.flatten() for one in others)])]


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
