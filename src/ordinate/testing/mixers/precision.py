"""Types of numbers."""

import torch

from ordinate.testing.closeness import assert_mostly_near, assert_near
from ordinate.testing.mixer import MixerCase

TOKENS = 48


def narrow_types_stay_near_the_wide_one(case: MixerCase) -> None:
    """Results in the type of the input, in float32 and bfloat16, near those in float64."""
    x = case.tokens(2, TOKENS)
    for where in case.geometries(TOKENS):
        exact = case.mixed(x, where)
        for dtype, near, share in ((torch.float32, assert_near, 1e-4), (torch.bfloat16, assert_mostly_near, 0.15)):
            out = case.mixed(x.to(dtype), where)
            assert out.dtype == dtype, f"{dtype} gives {out.dtype}"
            near(out, exact, share, f"{dtype}")


def autocast_does_not_narrow_what_runs(case: MixerCase) -> None:
    """Under autocast to bfloat16 a float32 mixer gives finite results near the exact ones, forward and backward."""
    x = case.tokens(2, TOKENS, torch.float32).requires_grad_()
    for where in case.geometries(TOKENS):
        exact = case.mixed(x.detach().double(), where)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = case.mixed(x, where)
        assert_mostly_near(out.detach(), exact, 0.15, "autocast")
        (gradient,) = torch.autograd.grad(out.float().square().sum(), x)
        assert gradient.isfinite().all(), "the gradient under autocast is not finite"


def a_state_dict_holds_all_of_it(case: MixerCase) -> None:
    """An instance from another seed that loads it gives the same."""
    x = case.tokens(1, 17)
    one, other = case.mixer(), case.mixer(seed=1)
    other.load_state_dict(one.state_dict())
    for where in case.geometries(17):
        assert case.mixed(x, where, one).equal(case.mixed(x, where, other)), "the loaded one differs"


def widening_again_changes_nothing_but_rounding(case: MixerCase) -> None:
    """There and back through bfloat16 the parameters are rounded once, and nothing else is lost."""
    x = case.tokens(1, 17)
    there, rounded = case.mixer().to(torch.bfloat16).double(), case.mixer()
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    for where in case.geometries(17):
        same = torch.allclose(case.mixed(x, where, there), case.mixed(x, where, rounded), rtol=1e-9, atol=1e-12)
        assert same, "more than its parameters was rounded"
