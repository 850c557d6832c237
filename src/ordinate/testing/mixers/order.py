"""Permutation equivariance of a mixer without a positional scheme."""

import torch

from ordinate.testing.mixer import MixerCase

TOKENS = 600


def equivariance_is_as_declared(case: MixerCase) -> None:
    """Without a scheme, permuted inputs give permuted outputs if and only if it is declared equivariant."""
    case.skip_unless(case.kind.bidirectional, "it has no bidirectional form, so order matters")
    # longer than the default windows: a shorter sequence would be equivariant for windowed attention
    count = min(case.mixer().max_length or TOKENS, TOKENS)
    x, order = case.tokens(1, count), torch.tensor([(7 * place + 3) % count for place in range(count)])
    off = (case.output_without_positions(x)[:, order] - case.output_without_positions(x[:, order])).abs().max().item()
    scale = case.output_without_positions(x).abs().max().item()
    if case.kind.permutation_equivariant:
        assert off <= 1e-9 * scale, f"it declares equivariance; permuting changes outputs by {off:.3g}"
    else:
        assert off > 1e-6 * scale, "it declares no equivariance; permuting the inputs only permutes the outputs"
