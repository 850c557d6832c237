"""The interval of a share of the variance holds the share that it says, of few texts too."""

import pytest
import torch

from ordinate.ops.stats.variance_components import position_share


def drawn(texts, position, text, residual, seed):
    """Vectors with these variance components; that of the position is exact."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randn(1, 12, 6, generator=generator)
    places = places - places.mean(1, keepdim=True)
    places = places * (position * 11 * 6 / places.square().sum()).sqrt()
    own = torch.randn(texts, 1, 6, generator=generator) * text**0.5
    return places + own + torch.randn(texts, 12, 6, generator=generator) * residual**0.5


@pytest.mark.parametrize("parts", [(1, 1, 1), (1, 0.1, 0.1), (0.1, 1, 1), (0, 1, 1)])
@pytest.mark.parametrize("texts", [3, 4, 6, 10])
def test_few_texts_give_an_interval_that_covers(texts, parts):
    share, draws = parts[0] / sum(parts), 150
    found = [position_share(drawn(texts, *parts, seed)) for seed in range(draws)]
    # 90 % of 150 draws are more than two standard errors below 95 %
    assert sum(one.low <= share <= one.high for one in found) >= 0.9 * draws
