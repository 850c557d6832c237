"""Dtypes: float32, bfloat16, autocast, and conversion of the parameters."""

import torch

from ordinate.testing.assert_close import assert_max_close, assert_rms_close
from ordinate.testing.mixer import MixerCase

TOKENS = 48


def float32_and_bfloat16_are_close_to_float64(case: MixerCase) -> None:
    """Outputs in float32 and bfloat16 have the dtype of the input and are close to those in float64."""
    x = case.tokens(2, TOKENS)
    for where in case.geometries(TOKENS):
        exact = case.output(x, where)
        for dtype, near, share in ((torch.float32, assert_max_close, 1e-4), (torch.bfloat16, assert_rms_close, 0.15)):
            out = case.output(x.to(dtype), where)
            assert out.dtype == dtype, f"{dtype} gives {out.dtype}"
            near(out, exact, share, f"{dtype}")


def autocast_is_close_to_float64(case: MixerCase) -> None:
    """Under autocast to bfloat16 a float32 mixer is close to float64, and its gradients are finite."""
    x = case.tokens(2, TOKENS, torch.float32).requires_grad_()
    for where in case.geometries(TOKENS):
        exact = case.output(x.detach().double(), where)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = case.output(x, where)
        assert_rms_close(out.detach(), exact, 0.15, "autocast")
        (gradient,) = torch.autograd.grad(out.float().square().sum(), x)
        assert gradient.isfinite().all(), "the gradient under autocast is not finite"


def the_state_dict_is_complete(case: MixerCase) -> None:
    """An instance from another seed gives equal results after loading the state dict."""
    x = case.tokens(1, 17)
    one, other = case.mixer(), case.mixer(seed=1)
    other.load_state_dict(one.state_dict())
    for where in case.geometries(17):
        assert case.output(x, where, one).equal(case.output(x, where, other)), "the loaded one differs"


def conversion_to_bfloat16_only_rounds_parameters(case: MixerCase) -> None:
    """Converting the mixer to bfloat16 and back only rounds its parameters."""
    x = case.tokens(1, 17)
    there, rounded = case.mixer().to(torch.bfloat16).double(), case.mixer()
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    for where in case.geometries(17):
        same = torch.allclose(case.output(x, where, there), case.output(x, where, rounded), rtol=1e-9, atol=1e-12)
        assert same, "the conversion changed more than its parameters"
