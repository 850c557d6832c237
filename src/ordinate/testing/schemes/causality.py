"""Nothing flows back from the future."""

import torch

from ordinate.geometry import Geometry
from ordinate.testing.case import Case

TOKENS = 6


def no_gradient_reaches_back_from_the_future(case: Case) -> None:
    """The gradient of each output by every later input is exactly 0, in training and out; by itself it is not."""
    model = case.model()
    for training in (False, True):
        model.train(training)
        for where in _orders(case):
            x = case.vectors(1, TOKENS).requires_grad_()
            out = model(x, where)
            for query in range(TOKENS):
                (gradient,) = torch.autograd.grad(out[:, query].square().sum(), x, retain_graph=True)
                felt = (gradient[0] != 0).any(-1)
                assert not felt[query + 1 :].any(), f"token {query} feels a later one"
                assert felt[: query + 1].all(), f"token {query} does not feel all tokens up to itself"


def a_changed_future_leaves_the_past_as_it_was(case: Case) -> None:
    """Even where the future becomes NaN."""
    model, x = case.model(), case.vectors(1, TOKENS)
    for where in _orders(case):
        out = model(x, where)
        for change in (1e4, float("nan")):
            changed = x.clone()
            changed[:, 4:] = change
            again = model(changed, where)
            # NaN goes by the reference route, which rounds differently from others
            same = torch.allclose(out[:, :4], again[:, :4], rtol=0, atol=1e-12 * out.abs().max().item())
            assert same, f"tokens before a future of {change} changed"


def _orders(case: Case) -> tuple[Geometry, Geometry]:
    # causality follows the order in memory, whatever the positions say
    backwards = torch.tensor([5, 3, 30, 2, 9, 0])[None, :, None]
    return case.place(Geometry.causal(TOKENS)), case.place(Geometry.given(backwards))
