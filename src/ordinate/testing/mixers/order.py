"""Whether a mixer tells the order of its tokens by itself."""

import torch

from ordinate.testing.mixer import MixerCase

TOKENS = 600


def it_tells_order_as_it_declares(case: MixerCase) -> None:
    """Without a scheme, permuted tokens give permuted results if it is equivariant, and only then."""
    case.need(case.kind.bidirectional, "it reads from left to right only, so order is told")
    # longer than a usual window: a text inside of one has no order for it
    count = min(case.mixer().max_length or TOKENS, TOKENS)
    x, order = case.tokens(1, count), torch.tensor([(7 * place + 3) % count for place in range(count)])
    off = (case.plain(x)[:, order] - case.plain(x[:, order])).abs().max().item()
    scale = case.plain(x).abs().max().item()
    if case.kind.equivariant:
        assert off <= 1e-9 * scale, f"it says that it is equivariant; permuting changes results by {off:.3g}"
    else:
        assert off > 1e-6 * scale, "it says that it tells order; permuting the tokens only permutes the results"
