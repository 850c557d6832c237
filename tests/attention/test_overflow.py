"""Numbers whose products overflow, in tokens that the outputs which are read do not see."""

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import BACKENDS, _call
from ordinate.attention._backend import ScoreOptions
from ordinate.attention.backends import native, offset_bias, relative_vectors, row_blocks
from ordinate.schemes import T5, Cope, NoPosition, Shaw

TOKENS, PAST, HEADS, WIDTH = 20, 12, 2, 8
SCHEMES = {
    "none": NoPosition,
    "t5": lambda: T5(heads=HEADS),
    "shaw": lambda: Shaw(head_width=WIDTH),
    "cope": lambda: with_table(Cope(head_width=WIDTH, max_positions=4)),
}
OPTIONS = {"plain": None, "cap": ScoreOptions(softcap=20.0), "sinks": ScoreOptions(sinks=torch.zeros(HEADS))}
VALUES = [1e17, 3e18, 1e38, 3e38, float("nan")]


def with_table(scheme):
    torch.nn.init.normal_(scheme.table)
    return scheme


@pytest.fixture
def _small(monkeypatch):
    for module in (native, offset_bias, relative_vectors, row_blocks):
        monkeypatch.setattr(module, "MIN_PAIRS", 1)


def gradients(scheme, where, inputs, name, options):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = attend(*inputs, scheme.at(where), backend=name, score_options=options)[:, :, :PAST]
    needed = [*inputs, *scheme.parameters()]
    found = torch.autograd.grad(out.square().sum(), needed, allow_unused=True)
    return [out, *(torch.zeros_like(x) if y is None else y for x, y in zip(needed, found, strict=True))]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", SCHEMES)
def test_large_later_tokens_leave_outputs_and_gradients_of_earlier_ones(name, options):
    torch.manual_seed(0)
    scheme, inputs = SCHEMES[name](), torch.randn(3, 1, HEADS, TOKENS, WIDTH).unbind()
    for where in (Geometry.causal(TOKENS), Geometry.causal(TOKENS, window=6)):
        for value in VALUES:
            for which in ((0, 1, 2), (int(value > 1e30),)):
                changed = [x.clone() for x in inputs]
                for place in which:
                    changed[place][:, :, PAST:] = value
                exact = gradients(scheme, where, inputs, "reference", OPTIONS[options])
                call = _call(*(x.requires_grad_() for x in changed), scheme.at(where), None, 0.0, OPTIONS[options])
                for backend, member in [(None, None), *BACKENDS.items()]:
                    if member is not None and member.unsupported_reason(call) is not None:
                        continue
                    found = gradients(scheme, where, changed, backend, OPTIONS[options])
                    for one, other in zip(found, exact, strict=True):
                        assert (one - other).abs().max() <= 1e-4 * max(other.abs().max(), 1e-2), (
                            backend,
                            value,
                            which,
                        )


def test_the_row_itself_becomes_nan_and_tells_why():
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, WIDTH).unbind()
    q[:, :, PAST] = k[:, :, PAST] = 1e30
    at = NoPosition().at(Geometry.causal(TOKENS))
    out = attend(q, k, v, at)
    assert out[:, :, PAST].isnan().all()
    assert out[:, :, :PAST].isfinite().all()
    assert explain(q, k, v, at).unsupported["sdpa"] == "products of numbers above 1e+18 in q, k or v may overflow"
    half = [x.half() for x in torch.randn(3, 1, HEADS, TOKENS, WIDTH).unbind()]
    half[0][0, 0, 3, 0] = 65504.0
    assert explain(*half, at).backend != "reference"
