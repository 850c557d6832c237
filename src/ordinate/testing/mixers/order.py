"""Whether a mixer tells the order of its tokens by itself."""

import torch

from ordinate.testing.mixer import MixerCase


def it_tells_order_as_it_declares(case: MixerCase) -> None:
    """Without a scheme, permuted tokens give permuted results if it is equivariant, and only then."""
    case.need(case.kind.bidirectional, "it reads from left to right only, so order is told")
    x, order = case.tokens(1, 24), torch.tensor([(7 * place + 3) % 24 for place in range(24)])
    off = (case.plain(x)[:, order] - case.plain(x[:, order])).abs().max().item()
    scale = case.plain(x).abs().max().item()
    if case.kind.equivariant:
        assert off <= 1e-9 * scale, f"it says that it is equivariant; permuting changes results by {off:.3g}"
    else:
        assert off > 1e-6 * scale, "it says that it tells order; permuting the tokens only permutes the results"
