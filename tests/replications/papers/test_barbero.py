import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.barbero import peak_share


def test_a_key_peaks_at_its_distance_unless_the_rotation_repeats():
    assert peak_share(torch.tensor([1.0, 0.1], dtype=torch.float64), 0, 40) == 1
    assert peak_share(torch.tensor([2 * torch.pi / 5], dtype=torch.float64), 0, 40) == 0


@pytest.mark.extended
def test_its_propositions_hold():
    result = replicate("barbero")
    assert [one.verdict for one in result.claims] == ["agrees"] * 3
