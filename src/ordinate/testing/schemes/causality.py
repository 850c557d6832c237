"""Causality: outputs do not depend on future tokens."""

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.case import SchemeCase
from ordinate.testing.check import makes_tensors_on_a_gpu

TOKENS = 6


def no_output_has_a_gradient_from_future_tokens(case: SchemeCase) -> None:
    """Gradients with respect to later inputs are exactly 0, in training and evaluation; all others are not 0."""
    model = case.model()
    for training in (False, True):
        model.train(training)
        for where in _orders(case):
            x = case.embeddings(1, TOKENS).requires_grad_()
            out = model(x, where)
            for query in range(TOKENS):
                (gradient,) = torch.autograd.grad(out[:, query].square().sum(), x, retain_graph=True)
                used = (gradient[0] != 0).any(-1)
                assert not used[query + 1 :].any(), f"token {query} depends on a later one"
                assert used[: query + 1].all(), f"token {query} does not depend on all tokens up to itself"


def changing_future_tokens_leaves_past_outputs_unchanged(case: SchemeCase) -> None:
    """Even if future tokens become NaN; on a GPU, where NaN is not looked for, if they become large."""
    model, x = case.model(), case.embeddings(1, TOKENS)
    for where in _orders(case):
        out = model(x, where)
        for change in (1e4, *(() if makes_tensors_on_a_gpu() else (float("nan"),))):
            changed = x.clone()
            changed[:, 4:] = change
            again = model(changed, where)
            # inputs with NaN use the reference backend, which rounds differently from others
            same = torch.allclose(out[:, :4], again[:, :4], rtol=0, atol=1e-12 * out.abs().max().item())
            assert same, f"tokens before a future of {change} changed"


def _orders(case: SchemeCase) -> tuple[Geometry, Geometry]:
    # causality follows memory order, whatever the positions are
    backwards = torch.tensor([5, 3, 30, 2, 9, 0])[None, :, None]
    return case.with_axes(Geometry.causal(TOKENS)), case.with_axes(Geometry.from_positions(backwards))
