import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.zuo import FIRST, similarities


def test_the_similarity_of_places_is_that_of_the_vectors_before():
    """Kills the mutant that compares with the place after."""
    x = torch.eye(20, dtype=torch.float64)[None].repeat(1, 1, 1)
    x[0, FIRST] = x[0, FIRST - 2]
    found = similarities(x, 2)[0]
    assert found[0] == pytest.approx(1.0)
    assert float(found[1:].abs().max()) == 0


@pytest.mark.extended
def test_averages_have_the_similarity_of_the_formula():
    assert replicate("zuo").claims[0].verdict == "agrees"
