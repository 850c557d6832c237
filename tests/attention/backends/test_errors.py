from copy import deepcopy

import pytest
import torch
from torch import nn

from ordinate import Geometry, attend
from ordinate.schemes import T5, Deberta, Fire, TransformerXl

HEADS, WIDTH = 2, 64
SCHEMES = {
    # frozen: with a mask that requires gradients PyTorch uses another kernel, slower, but more exact
    "t5": ("offset_bias", 2048, lambda: T5(heads=HEADS).requires_grad_(False)),
    "fire": ("row_blocks", 1024, lambda: Fire(heads=HEADS)),
    "transformer_xl": (
        "relative_vectors",
        1024,
        lambda: TransformerXl(heads=HEADS, head_width=WIDTH, width=HEADS * WIDTH),
    ),
    "deberta": ("relative_vectors", 1024, lambda: Deberta(heads=HEADS, head_width=WIDTH, width=HEADS * WIDTH)),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", SCHEMES)
def test_errors_at_long_sequences_are_no_larger_than_those_of_sdpa(name):
    torch.manual_seed(1)
    backend, tokens, make = SCHEMES[name]
    where, scheme = Geometry.causal(tokens), make()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter, std=0.1)
    q, k, v, upstream = torch.randn(4, 1, HEADS, tokens, WIDTH)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = attend(*wide, deepcopy(scheme).double().at(where), backend="reference")
    true = exact, *torch.autograd.grad(exact, wide, upstream.double())
    ours, theirs = (
        [((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, true, strict=True)]
        for out in (attend(*inputs, scheme.at(where), backend=name) for name in (backend, "sdpa"))
        for found in [(out, *torch.autograd.grad(out, inputs, upstream))]
    )
    # where both take the same kernel, errors are the same, and their norms are summed in another order
    assert max(error / usual for error, usual in zip(ours, theirs, strict=True)) <= 1.0 + 1e-9
